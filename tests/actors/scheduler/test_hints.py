"""What a scheduler tells speculation: each token while a draft is likely, and once a plan otherwise."""

from __future__ import annotations

import msgspec

from actors.scheduler.hints import SPECULATION
from messages import drafts
from tests.support.memory_cluster import MemoryCluster, ScriptedActor
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected

LIKELY_TOKENS = 8


class SilentSpeculation(ScriptedActor):
    """Reads all reports and answers none."""

    reports: tuple[tuple[int, int], ...] = ()  # (first position, number of tokens)

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, drafts.Tails):
            rows = zip(message.starts.tolist(), message.counts.tolist(), strict=True)
            self.reports += tuple((start, count) for start, count in rows if count >= 0)


async def test_speculation_hears_of_all_tokens_in_few_messages_when_nothing_repeats(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, msgspec.structs.replace(WORKER, max_lease_steps=8))
    await bench.begin()
    speculation = SilentSpeculation(cluster, SPECULATION)
    cluster.introduce(speculation)
    await cluster.settle(20)
    bench.gateway.submit(1, [1, 2, 3], 200, speculation=True)
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected([1, 2, 3], 200)
    known = 0
    for start, count in speculation.reports:  # without a gap
        assert start == known
        known += count
    assert known > 200 - 8
    assert len(speculation.reports) <= LIKELY_TOKENS + len(bench.gang.plans)
    assert len(bench.gang.plans) < 100
