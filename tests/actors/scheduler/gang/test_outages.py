"""The log of a scheduler says how long each phase of a lost gang took."""

from __future__ import annotations

from structlog.testing import capture_logs

from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected


async def test_the_phases_of_a_loss_are_told_once_and_in_order(cluster: MemoryCluster) -> None:
    with capture_logs() as logs:
        bench = SchedulerBench(cluster)
        await bench.begin()
        bench.gang.hold()
        bench.gateway.submit(1, [1, 2, 3], 50)
        await cluster.wait_until(lambda: bool(bench.gang.plans))
        for incarnation in (2, 3):  # the second gang dies before its first result
            await cluster.kill("worker/0.0")
            bench.gang = Gang(cluster, WORKER, incarnation=incarnation)
            if incarnation == 2:
                bench.gang.hold()
            cluster.introduce(bench.gang)
            await cluster.wait_until(lambda: bool(bench.gang.plans))
        await bench.ended(1)
    assert bench.gateway.tokens[1] == expected([1, 2, 3], 50)
    assert sum(line["event"] == "rank lost" for line in logs) == 2
    told = [line for line in logs if line["event"] == "tokens again"]
    assert len(told) == 1
    phases = [told[0][f"{name}_ms"] for name in ("reset", "ready", "planned", "computed")]
    assert phases == sorted(phases)
    assert phases[0] >= 0.0


async def test_a_gang_that_was_idle_is_no_outage(cluster: MemoryCluster) -> None:
    with capture_logs() as logs:
        bench = SchedulerBench(cluster)
        await bench.begin()
        await cluster.kill("worker/0.0")
        cluster.introduce(Gang(cluster, WORKER, incarnation=2))
        bench.gateway.submit(1, [1, 2, 3], 5)
        await bench.ended(1)
    assert [line["running"] for line in logs if line["event"] == "rank lost"] == [0]
    assert not any(line["event"] == "tokens again" for line in logs)


async def test_a_rank_that_was_asked_to_end_is_no_warning(cluster: MemoryCluster) -> None:
    with capture_logs() as logs:
        bench = SchedulerBench(cluster)
        await bench.begin()
        await cluster.kill("worker/0.0", "ended")
        await cluster.wait_until(lambda: any(line["event"] == "rank lost" for line in logs))
    assert [line["log_level"] for line in logs if line["event"] == "rank lost"] == ["info"]
