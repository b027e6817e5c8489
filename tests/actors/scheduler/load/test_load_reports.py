"""Gateways learn the load of a replica when it changes, and nothing while it does not."""

from __future__ import annotations

import itertools
import time

import msgspec
import pytest

from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.scheduler.load import degradation
from actors.scheduler.load.load_reports import matters
from messages.generation.replica_load import DegradationLevel, ReplicaLoad
from tests.support.memory_cluster import CollectingGateway, MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, expected, prompt_of

_LOAD = ReplicaLoad(
    number=3, waiting=80, running=8, waiting_tokens=16_000, running_tokens=800, pages_used=64, pages=128,
    prefill_rate=1000.0, decode_rate=100.0,
)  # fmt: skip


class _Watcher(CollectingGateway):
    """A gateway that keeps every report."""

    def __init__(self, cluster: MemoryCluster, name: str) -> None:
        super().__init__(cluster, name=name)
        self.loads: list[ReplicaLoad] = []

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, ReplicaLoad):
            self.loads.append(message)
        super().handle(sender, message)


async def test_gateways_learn_what_waits_and_runs_and_that_all_is_done(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    watcher = _Watcher(cluster, "gateway/1")
    cluster.introduce(watcher)
    bench.gang.hold()
    for i in range(30):
        bench.gateway.submit(i, prompt_of(i, 40), 20)
    await cluster.wait_until(lambda: any(load.waiting for load in watcher.loads))
    load = next(load for load in watcher.loads if load.waiting)
    assert load.waiting + load.running == 30
    assert load.waiting_tokens == load.waiting * 60
    assert load.running_tokens <= load.running * 60
    assert load.pages == 128
    bench.gang.release_held()
    await bench.ended(30)
    await cluster.wait_until(lambda: watcher.loads[-1].waiting == watcher.loads[-1].running == 0)
    last = watcher.loads[-1]
    assert (last.waiting_tokens, last.running_tokens, last.pages_used) == (0, 0, 0)
    assert last.token_bytes == 8
    assert last.prefill_s(1000) > last.prefill_s(100) > 0.0
    numbers = [load.number for load in watcher.loads]
    assert numbers == sorted(set(numbers))


async def test_a_gateway_that_appears_is_told_and_an_idle_replica_tells_no_more(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    watchers = [_Watcher(cluster, "gateway/1"), _Watcher(cluster, "gateway/2")]
    for watcher in watchers:
        cluster.introduce(watcher)
        await cluster.wait_until(lambda watcher=watcher: bool(watcher.loads))
    n_told = len(watchers[0].loads)
    for _ in range(50):
        bench.scheduler.after_mail()
    await cluster.settle(50)
    assert len(watchers[0].loads) == n_told


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        ({}, False),
        ({"waiting": 86, "waiting_tokens": 17_000, "running_tokens": 740, "prefill_rate": 1090.0}, False),
        ({"waiting": 0}, True),
        ({"waiting": 100}, True),
        ({"running": 9}, False),
        ({"running": 7}, False),
        ({"running": 6}, True),
        ({"waiting_tokens": 14_000}, False),
        ({"waiting_tokens": 13_000}, True),
        ({"running_tokens": 640}, True),
        ({"pages_used": 70}, False),
        ({"pages_used": 80}, True),
        ({"pages": 64}, True),
        ({"decode_rate": 50.0}, True),
        ({"token_s": 0.001}, True),
        ({"pair_s": 0.001}, True),
        ({"token_bytes": 8}, True),
        ({"level": DegradationLevel.NO_DRAFTS}, True),
    ],
)
def test_what_matters(change: dict[str, float], is_told: bool) -> None:
    assert matters(_LOAD, msgspec.structs.replace(_LOAD, **change)) == is_told


def test_old_reports_are_ignored_and_those_of_the_next_incarnation_are_not() -> None:
    loads = ReplicaLoads()
    loads.note("scheduler/0", _LOAD)
    loads.note("scheduler/0", msgspec.structs.replace(_LOAD, number=2, waiting=1))
    assert loads.of("scheduler/0") is _LOAD
    assert loads.of("scheduler/1") is None
    loads.remove("scheduler/0")
    loads.note("scheduler/0", msgspec.structs.replace(_LOAD, number=0))
    assert loads.of("scheduler/0") == msgspec.structs.replace(_LOAD, number=0)


def test_the_wait_is_the_queued_work_at_the_measured_pace() -> None:
    assert _LOAD.wait_s == pytest.approx(16_000 / 1100)
    assert msgspec.structs.replace(_LOAD, prefill_rate=0.0, decode_rate=0.0).wait_s == 0.0


async def test_a_level_turns_drafts_off_and_falls_again_without_mail(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(degradation, "RISE_S", 0.0)
    monkeypatch.setattr(degradation, "FALL_S", 0.0)
    bench = SchedulerBench(cluster, degraded_wait_s=1e-6)
    await bench.begin()
    watcher = _Watcher(cluster, "gateway/1")
    cluster.introduce(watcher)
    for i in range(40):
        bench.gateway.submit(i, prompt_of(i, 40), 200, speculation=True)
    await cluster.wait_until(lambda: any(load.level for load in watcher.loads))
    assert bench.scheduler._usable_drafts() is None
    await bench.ended(40)
    await cluster.wait_until(lambda: watcher.loads[-1].level is DegradationLevel.NORMAL)
    assert bench.scheduler._usable_drafts() is not None
    for i in range(40):
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 40), 200)


async def test_the_pace_is_not_forgotten_while_a_gang_is_dead(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, degraded_wait_s=1.0)
    await bench.begin()
    looks_s = itertools.count(time.monotonic() + 1000.0, 0.1)
    loads = bench.scheduler._reports.loads

    def look() -> float:
        loads._look(next(looks_s))
        return loads._load().prefill_rate + loads._load().decode_rate

    for i in range(8):
        bench.gateway.submit(i, prompt_of(i, 40), 400)
    await cluster.wait_until(lambda: look() > 0.0 and len(bench.scheduler._queues.running) == 8)
    await cluster.kill("worker/0.0")
    await cluster.wait_until(lambda: not bench.scheduler._gang.is_alive)
    assert len(bench.scheduler._queues.running)
    rate = look()
    assert [look() for _ in range(100)] == [rate] * 100
