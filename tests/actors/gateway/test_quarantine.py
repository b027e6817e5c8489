"""A prompt that killed workers until it was quarantined is refused when it comes again, whatever way and id it comes with."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from actors.gateway.order import Order
from actors.gateway.quarantine import Quarantine
from actors.gateway.refusals import Refusal
from messages.arrays import int32s
from messages.client import AsyncClient
from messages.faults import RequestFailed
from messages.generation import Sampling
from tests.actors.gateway.test_front_laws import wired
from tests.actors.gateway.test_request import order_of

POISON, GOOD = bytes(8), b"good"


def order(*prompts: bytes, n: int = 1, **sampling: float) -> Order:
    return msgspec.structs.replace(order_of(), prompts=list(prompts), n=n, sampling=Sampling(**sampling))  # pyright: ignore[reportArgumentType]


def test_what_was_condemned_is_refused_until_its_time_is_over() -> None:
    quarantine = Quarantine(600.0)
    quarantine.condemn(order(GOOD, POISON, n=2, seed=1), 3, 1000.0)
    with pytest.raises(Refusal, match="another 600 s") as refused:
        quarantine.check(order(POISON, seed=2), 1000.0)
    assert (refused.value.code, refused.value.status) == ("quarantined", 422)
    with pytest.raises(Refusal):
        quarantine.check(order(GOOD, POISON), 1599.0)
    quarantine.check(order(GOOD), 1000.0)
    quarantine.check(order(POISON, temperature=0.5), 1000.0)
    quarantine.check(order(POISON), 1600.0)
    assert len(quarantine) == 0


def test_condemned_again_its_time_begins_anew_and_few_are_remembered() -> None:
    quarantine = Quarantine(600.0)
    quarantine.condemn(order(POISON), 0, 1000.0)
    for number in range(1023):
        quarantine.condemn(order(b"%04d" % number), 0, 1001.0)
    quarantine.condemn(order(POISON), 0, 1002.0)
    quarantine.condemn(order(GOOD), 0, 1003.0)
    assert len(quarantine) == 1024
    with pytest.raises(Refusal):
        quarantine.check(order(POISON), 1601.5)
    quarantine.check(order(b"0000"), 1003.0)


async def test_the_same_prompt_under_another_id_is_not_computed_again() -> None:
    async with wired() as (r, _), r.http() as http, AsyncClient(r.settings.front_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
        asked = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await r.house.wait_until(lambda: scheduler.running)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        assert (await asked).status_code == 422
        again = await http.post("/v1/completions", json=body)
        assert (again.status_code, again.json()["error"]["code"]) == (422, "quarantined")
        assert "refused for another" in again.json()["error"]["message"]
        with pytest.raises(RequestFailed, match=r"^quarantined: "):
            await client.generate(int32s([1, 2, 3]), max_tokens=9, temperature=0.0)
        assert len(scheduler.submits) == 1
        scheduler.is_automatic = True
        assert (await http.post("/v1/completions", json={**body, "prompt": [1, 2]})).status_code == 200
        assert r.gateway.desk is not None
        assert (r.gateway.desk.doors.n_arriving, r.gateway.bodies.n_bytes) == (0, 0)
