"""/health tells whether the server does its work: a replica that stands still is noticed, an idle or a busy one is well."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from actors.gateway.standstill import Standstill
from messages.descriptors.reserve import process_reserve
from messages.generation.sequences import Holding
from messages.ids import STANDBY_SEAT, actor_name
from messages.lifecycle.cordon import Cordon
from messages.wire.arrays import int32s, int64s
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.memory_cluster import ScriptedActor

BODY = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
HERE, THERE = "scheduler/0", "scheduler/1"


def after(watch: Standstill, n_seconds: int, start_s: float, **load_by_name: int) -> dict[str, float]:
    """Update once a second for `n_seconds` seconds."""
    for second in range(n_seconds):
        watch.update(load_by_name, start_s + second)
    return watch.lasting(start_s + n_seconds - 1)


def test_work_without_steps_is_a_standstill_and_a_step_ends_it() -> None:
    watch = Standstill(30.0)
    assert after(watch, 100, 0.0, a=0, b=0) == {}
    assert after(watch, 30, 100.0, a=1, b=0) == {}
    assert after(watch, 5, 130.0, a=1, b=0) == {"a": 34.0}
    watch.heard("a", 7, 135.0)
    assert after(watch, 30, 135.0, a=1, b=0) == {}
    watch.heard("a", 7, 165.0)  # the same number as before
    assert after(watch, 1, 165.0, a=1, b=0) == {"a": 30.0}


def test_a_replica_that_has_just_got_work_and_one_that_works_are_well() -> None:
    watch = Standstill(30.0)
    watch.heard("a", 7, 0.0)
    for second in range(100):
        watch.heard("b", second, float(second))
        watch.update({"a": second % 20, "b": 1}, float(second))
        assert watch.lasting(float(second)) == {}


def test_a_pause_of_this_process_is_not_one_of_the_others() -> None:
    watch = Standstill(30.0)
    after(watch, 10, 0.0, a=1)
    assert after(watch, 10, 1000.0, a=1) == {}
    assert after(watch, 30, 1010.0, a=1)


class Clock:
    """The gateway's clock, which the test moves."""

    def __init__(self, r: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_s = r.gateway.now_s()
        monkeypatch.setattr(r.gateway, "now_s", lambda: self._now_s)
        self._gateway = r.gateway

    def run(self, seconds: int) -> None:
        """Let time pass, in which the gateway beats."""
        for _ in range(seconds):
            self._now_s += 1.0
            self._gateway.tick()


async def health(http: httpx.AsyncClient) -> tuple[int, str, list[str]]:
    answer = await http.get("/health")
    assert (await http.get("/ready")).status_code == answer.status_code
    assert (await http.get("/live")).status_code == 200
    return answer.status_code, answer.json()["status"], answer.json()["reasons"]


def tell_steps(scheduler: FakeScheduler, n_steps: int) -> None:
    """The scheduler sends its inventory."""
    running = scheduler.running
    inventory = Holding(
        number=scheduler.sent,
        newest=max(running),
        attempts=int64s(list(running)),
        told=int32s([run.first for run in running.values()]),
        steps=n_steps,
    )
    scheduler.mailbox.send("gateway/0", inventory)


async def test_a_server_whose_only_replica_stands_still_is_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(with_scheduler=False, stalled_s=30.0) as r, r.http() as http:
        scheduler, clock = await r.add_scheduler(is_automatic=False), Clock(r, monkeypatch)
        clock.run(1000)
        assert await health(http) == (200, "serving", [])
        asked = asyncio.ensure_future(http.post("/v1/completions", json=BODY))
        await r.cluster.wait_until(lambda: scheduler.running)
        clock.run(29)
        assert await health(http) == (200, "serving", [])
        clock.run(10)
        reason = "scheduler/0: work waits, and no step has ended for 38 s"
        assert await health(http) == (503, "stalled", [reason])
        assert len(scheduler.submits) == 1, "health has no consequences"
        tell_steps(scheduler, 5)
        await r.cluster.settle(20)
        assert await health(http) == (200, "serving", [])
        clock.run(40)
        assert (await health(http))[1] == "stalled"
        scheduler.step(4)
        assert (await asked).status_code == 200
        assert await health(http) == (200, "serving", [])


async def test_a_server_with_another_replica_is_degraded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(with_scheduler=False, stalled_s=30.0) as r, r.http() as http:
        schedulers, clock = [await r.add_scheduler(name, is_automatic=False) for name in (HERE, THERE)], Clock(r, monkeypatch)
        asked = asyncio.ensure_future(http.post("/v1/completions", json=BODY))
        await r.cluster.wait_until(lambda: any(scheduler.running for scheduler in schedulers))
        clock.run(40)
        status, state, reasons = await health(http)
        assert (status, state, len(reasons)) == (200, "degraded", 1)
        [scheduler] = [scheduler for scheduler in schedulers if scheduler.running]
        scheduler.step(4)
        assert (await asked).status_code == 200


async def test_a_cordoned_replica_is_named_and_serves_nobody() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        for name in (HERE, THERE):
            await r.add_scheduler(name)
        dispatcher = r.manager.dispatcher
        dispatcher.set_cordons([Cordon(replica=1)])
        reason = "scheduler/1: its replica is cordoned, and gets no new requests"
        assert await health(http) == (200, "degraded", [reason])
        assert (await http.get("/health")).json()["parts"]["cordoned"] == [THERE]
        dispatcher.set_cordons([Cordon(replica=0), Cordon(replica=1)])
        assert (await health(http))[:2] == (503, "unavailable"), "requests wait"
        dispatcher.set_cordons([])
        assert await health(http) == (200, "serving", [])


async def test_a_standby_gang_that_has_taken_over_is_a_gang() -> None:
    """It sits in the other seat, and the next gang in the first seat is not announced."""
    async with rig() as r, r.http() as http:
        await r.cluster.kill("worker/0.0")
        await r.cluster.wait_until(lambda: not r.gateway.living("worker"))
        assert await health(http) == (503, "unavailable", ["scheduler/0: its replica is down"])
        r.cluster.introduce(ScriptedActor(r.cluster, actor_name("worker", 0, 0, STANDBY_SEAT)))
        await r.cluster.wait_until(lambda: r.gateway.living("worker"))
        assert await health(http) == (200, "serving", [])


async def test_a_gateway_that_can_open_no_file_is_unavailable_and_says_so() -> None:
    async with rig() as r, r.http() as http:
        process_reserve().is_short = True
        try:
            status, state, reasons = await health(http)
        finally:
            process_reserve().is_short = False
        assert (status, state, len(reasons)) == (503, "unavailable", 1)
        assert "too few free file descriptors" in reasons[0]
        assert await health(http) == (200, "serving", [])
