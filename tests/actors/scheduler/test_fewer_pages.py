"""A gang that comes back with fewer pages: what was accepted for more never ends as if it were complete."""

from __future__ import annotations

import msgspec

from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected, prompt_of

LARGE = msgspec.structs.replace(WORKER, max_length=1024, hash_chain_pages=64)
SMALL = msgspec.structs.replace(LARGE, hash_chain_pages=40)
SMALL_TOKENS = 40 * 16


async def test_an_answer_that_the_next_gang_cannot_hold_fails_with_a_code(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, LARGE)
    await bench.begin()
    wishes = {1: (prompt_of(1, 600), 300), 2: (prompt_of(2, 60), 900), 3: (prompt_of(3, 60), 200)}
    for attempt, (prompt, max_tokens) in wishes.items():
        bench.gateway.submit(attempt, prompt, max_tokens)
    await cluster.wait_until(lambda: len(bench.gateway.tokens[1]) > 60)
    await cluster.kill("worker/0.0")
    cluster.introduce(Gang(cluster, SMALL, 2))
    await bench.ended(3)
    endings = {attempt: (ending.reason, ending.code) for attempt, ending in bench.gateway.endings.items()}
    too_large = ("failed", "too_large_for_memory")
    assert endings == {1: too_large, 2: too_large, 3: ("length", "")}
    assert len(bench.gateway.tokens[2]) == SMALL_TOKENS - 60, "everything that this gang could hold was computed"
    for attempt, (prompt, _) in wishes.items():
        ids = bench.gateway.tokens[attempt]
        assert ids == expected(prompt, len(ids))


async def test_an_answer_of_an_earlier_scheduler_fails_too(cluster: MemoryCluster) -> None:
    """The server was started again with less memory, and the gateway submits what its journal has."""
    bench = SchedulerBench(cluster, SMALL)
    await bench.begin()
    prompt = prompt_of(1, 60)
    bench.gateway.submit(1, [*prompt, *expected(prompt, 5)], 900, n_prompt=60)
    bench.gateway.submit(2, prompt_of(2, 60), 900)
    await bench.ended(2)
    endings = {attempt: (ending.reason, ending.code) for attempt, ending in bench.gateway.endings.items()}
    assert endings == {1: ("failed", "too_large_for_memory"), 2: ("length", "")}, "the second was never promised more"


async def test_a_larger_gang_gives_back_what_was_promised(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, LARGE)
    await bench.begin()
    bench.gateway.submit(1, prompt_of(1, 60), 900)
    await cluster.wait_until(lambda: len(bench.gateway.tokens[1]) > 10)
    for incarnation, worker in ((2, SMALL), (3, LARGE)):
        await cluster.kill("worker/0.0")
        cluster.introduce(Gang(cluster, worker, incarnation))
        n_before = len(bench.gateway.tokens[1])
        await cluster.wait_until(lambda n_before=n_before: len(bench.gateway.tokens[1]) > n_before)
    await bench.ended(1)
    assert bench.gateway.endings[1].reason == "length"
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 60), 900)
