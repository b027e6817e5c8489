"""A gateway takes back what waits; what runs stays."""

from __future__ import annotations

from messages.generation.recall import Recall
from messages.wire.arrays import int64s
from tests.support.memory_cluster import MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, expected, prompt_of


async def test_only_what_has_never_had_a_slot_is_given_back(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    for i in range(20):
        bench.gateway.submit(i, prompt_of(i, 30), 60)
    await cluster.wait_until(lambda: len(bench.gateway.taken) == 20 and any(bench.gateway.tokens.values()))
    bench.gateway.mailbox.send("scheduler/0", Recall(attempts=int64s([*range(20), 99])))
    await bench.ended(20)
    assert len(bench.gateway.refused) + len(bench.gateway.endings) == 20
    assert bench.gateway.refused, "some had to wait"
    assert all(refused.retryable for refused in bench.gateway.refused.values())
    for i in bench.gateway.endings:
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 30), 60)
