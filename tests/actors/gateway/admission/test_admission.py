"""One path for every API: an id is one request, each check comes once, and reservations are always given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from actors.gateway.admission.admission import Admission, Arrival
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.held_text import HeldText

LONG = "x" * 5000  # is encoded in a thread
MINE = {"is_resumable": True, "digest": "d"}


def new(request: str = "r", **fields: Any) -> NewRequest:
    given = {"api": "generate", "sampling": Sampling(), "terms": Terms(max_tokens=3), "texts": [LONG]} | fields
    return NewRequest(request=request, **given)


@asynccontextmanager
async def slow_rig(**settings: Any) -> AsyncIterator[tuple[Rig, Admission, HeldText]]:
    async with rig(with_scheduler=False, **settings) as r:
        await r.add_scheduler(is_automatic=False)
        slow = HeldText()
        r.gateway.admission.builder.encoder.model = slow
        yield r, r.gateway.admission, slow


def held(r: Rig) -> tuple[int, int]:
    """Sequences that are reserved, bytes that are counted."""
    return r.gateway.manager.gate.n_reserved, r.gateway.bodies.n_bytes


async def test_an_id_said_twice_while_it_is_tokenised_is_one_request() -> None:
    async with slow_rig() as (r, admission, slow):
        first, second = (asyncio.ensure_future(admission.admit(new(**MINE))) for _ in range(2))
        await asyncio.sleep(0)
        assert isinstance(admission.find_same_id(new(**MINE)), Arrival)
        assert held(r) == (1, 0)
        slow.may_go.set()
        assert await first is await second
        assert slow.n_encoded == 1
        assert admission.find_same_id(new(**MINE)) is await first
        assert held(r) == (0, 0)


@pytest.mark.parametrize("other", [MINE | {"digest": "other"}, {}])
@pytest.mark.parametrize("is_accepted", [False, True])
async def test_another_request_under_the_same_id_is_a_conflict(other: dict[str, Any], is_accepted: bool) -> None:
    async with slow_rig() as (_, admission, slow):
        first = asyncio.ensure_future(admission.admit(new(**MINE)))
        await asyncio.sleep(0)
        if is_accepted:
            slow.may_go.set()
            await first
        with pytest.raises(Refusal, match="request_id: 'r' belongs to another request; expected the same body") as refused:
            await admission.admit(new(request_field="request_id", **other))
        assert (refused.value.code, refused.value.status) == ("conflict", 409)
        slow.may_go.set()
        assert isinstance(await first, Request)


async def test_everybody_who_waits_for_a_refused_request_hears_it_and_the_id_is_free_again() -> None:
    async with slow_rig() as (r, admission, slow):
        first, second = (asyncio.ensure_future(admission.admit(new(texts=["", LONG], **MINE))) for _ in range(2))
        await asyncio.sleep(0)
        assert held(r)[0] == 2
        slow.may_go.set()
        for refused in await asyncio.gather(first, second, return_exceptions=True):
            assert isinstance(refused, Refusal)
            assert (refused.code, refused.field) == ("invalid", "prompt")
        assert held(r) == (0, 0)
        assert isinstance(await admission.admit(new(**MINE)), Request)


async def test_a_drain_that_begins_while_it_is_tokenised_refuses_it() -> None:
    async with slow_rig() as (r, admission, slow):
        asked = asyncio.ensure_future(admission.admit(new()))
        await asyncio.sleep(0)
        r.gateway.manager.gate.is_draining = True
        slow.may_go.set()
        with pytest.raises(Refusal, match="draining"):
            await asked
        assert held(r) == (0, 0)
        assert r.gateway.manager.gate.n_active == 0


async def test_a_broken_tokenizer_leaves_nothing_reserved() -> None:
    async with slow_rig() as (r, admission, _):
        arrival = admission.begin(new(), n_bytes=100_000)
        assert held(r) == (1, 100_000 - 65_536)
        admission.builder.encoder.model = None  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(AttributeError):
            await admission.finish(arrival)
        with pytest.raises(Refusal, match="could not be read"):
            await arrival.wait_accepted()
        assert held(r) == (0, 0)


async def test_what_is_refused_at_once_reserves_nothing() -> None:
    async with slow_rig(max_active_requests=2, max_body_bytes=1000) as (r, admission, _):
        kept = admission.begin(new("a"))
        for wrong, n_bytes, code in (
            (new("b", n=2), 0, "overloaded"),
            (new("b", model="other"), 0, "not_found"),
            (new("b"), 1001, "too_large"),
        ):
            with pytest.raises(Refusal) as refused:
                admission.begin(wrong, n_bytes)
            assert refused.value.code == code
            assert held(r) == (1, 0)
            assert admission.find_same_id(wrong) is None
        r.gateway.admission.builder.encoder.model.may_go.set()  # pyright: ignore[reportAttributeAccessIssue]
        assert isinstance(await admission.finish(kept), Request)
