"""Overload as HTTP clients see it: one caller's flood, a level of degradation, the wait that an answer tells."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from messages.client import AsyncClient
from messages.generation.sequences import Refused
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.request_examples import load_of
from tests.support.metric_values import metric_value
from tests.support.waiting import DEADLINE_S

FLOOD, OTHER = {"x-key": "flood"}, {"x-key": "other"}
NAMED: dict[str, Any] = {"caller_header": "X-Key"}


@pytest.fixture
def place() -> Iterator[Path]:
    """A short private directory: socket paths have a limit."""
    with TemporaryDirectory(prefix="tg-") as folder:
        yield Path(folder)


def ask(http: httpx.AsyncClient, headers: dict[str, str], n_prompt: int = 10, **fields: Any) -> asyncio.Task[httpx.Response]:
    body = {"prompt": [(i * 7) % 900 for i in range(n_prompt)], "max_tokens": 10, "temperature": 0, **fields}
    return asyncio.ensure_future(http.post("/v1/completions", json=body, headers=headers))


async def told(r: Rig, **fields: Any) -> None:
    """The scheduler reports its load, and the gateway has heard of it."""
    number = fields.pop("number", 1)
    r.scheduler().mailbox.send("gateway/0", load_of(number, **fields))
    loads = r.manager.dispatcher.loads
    await r.cluster.wait_until(lambda: (one := loads.of("scheduler/0")) is not None and one.number == number)


async def test_a_flood_is_refused_while_another_caller_is_let_in_and_nothing_accepted_is_lost() -> None:
    async with rig(with_scheduler=False, max_queued_tokens=4000, **NAMED) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        scheduler.refuse_next = Refused(attempt=0, code="overloaded", detail="full", retryable=True)
        accepted: list[asyncio.Task[httpx.Response]] = []
        for n in range(1, 5):
            accepted.append(ask(http, FLOOD, 800))
            await r.cluster.wait_until(lambda n=n: len(scheduler.running) == min(n, 3) or accepted[-1].done())
        refused = await accepted.pop()
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "caller_share"
        assert int(refused.headers["Retry-After"]) >= 1
        assert "its share of 4000; got 2430 and 810 more" in refused.json()["error"]["message"]
        other = ask(http, OTHER, 800)
        await r.cluster.wait_until(lambda: len(scheduler.running) == 4)
        assert r.gateway.statistics()["queued_tokens"] == 3240.0
        scheduler.step()
        await r.cluster.wait_until(lambda: r.manager.gate.queued.shares.n_held == 0)
        again = ask(http, FLOOD, 800)
        await r.cluster.wait_until(lambda: len(scheduler.running) == 5)
        scheduler.is_automatic = True
        scheduler.step()
        scheduler._go_on()
        async with asyncio.timeout(DEADLINE_S):
            answers = await asyncio.gather(*accepted, other, again)
        assert [answer.status_code for answer in answers] == [200] * 5
        assert r.manager.gate.n_active == 0


async def test_levels_change_new_requests_and_answers_say_so() -> None:
    async with rig(degraded_n=2, degraded_max_tokens=5) as r, r.http() as http:
        await told(r, level=3, waiting_tokens=150)
        whole = await ask(http, OTHER, n=4, temperature=1)
        assert (len(whole.json()["choices"]), whole.json()["usage"]["completion_tokens"]) == (2, 10)
        assert {choice["finish_reason"] for choice in whole.json()["choices"]} == {"length"}
        streamed = await ask(http, OTHER, stream=True)
        assert streamed.headers["X-Degraded"] == "drafts=off, max_tokens=5"
        assert (whole.headers["X-Degraded"], whole.headers["X-Queue-Wait-Ms"]) == ("drafts=off, n=2, max_tokens=5", "1500")
        assert streamed.headers["X-Queue-Wait-Ms"] == "1500"
        assert r.gateway.statistics()["degradation_level"] == 3.0
        degraded = r.gateway.metrics.overload._degraded
        assert [metric_value(degraded.labels(one)) for one in ("drafts", "n", "max_tokens")] == [2, 1, 2]
        await told(r, number=2)
        usual = await ask(http, OTHER)
        assert not {"X-Degraded", "X-Queue-Wait-Ms"} & usual.headers.keys()
        assert usual.json()["usage"]["completion_tokens"] == 10


async def test_zeromq_clients_are_told_the_same(place: Path) -> None:
    endpoint = f"ipc://{place}/zeromq-0"
    async with rig(degraded_n=2, degraded_max_tokens=5, zeromq_endpoint=endpoint) as r, AsyncClient(endpoint) as client:
        await told(r, level=3, waiting_tokens=150)
        async with asyncio.timeout(DEADLINE_S):
            answer = await client.generate([5], max_tokens=10, n=4, temperature=1.0)
        assert [len(one.tokens) for one in answer.choices] == [5, 5]
        for one in (*answer.choices, *answer.pieces):
            assert (one.degraded, one.queue_wait_ms) == ("drafts=off, n=2, max_tokens=5", 1500)
        await told(r, number=2)
        async with asyncio.timeout(DEADLINE_S):
            usual = await client.generate([5], max_tokens=10)
        assert (usual.degraded, usual.queue_wait_ms, len(usual.tokens)) == ("", 0, 10)


async def test_a_level_changes_nothing_in_a_request_that_is_accepted() -> None:
    async with rig(with_scheduler=False, degraded_max_tokens=5) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        early = ask(http, OTHER)
        await r.cluster.wait_until(lambda: len(scheduler.running) == 1)
        await told(r, level=4)
        shed = await ask(http, OTHER)
        assert (shed.status_code, shed.json()["error"]["code"]) == (429, "shed")
        scheduler.is_automatic = True
        scheduler._go_on()
        async with asyncio.timeout(DEADLINE_S):
            answer = await early
        assert answer.json()["usage"]["completion_tokens"] == 10
