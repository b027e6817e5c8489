"""Every code of a refusal, with both numbers in its detail."""

from __future__ import annotations

import pytest

from actors.scheduler.admission import judge, unfit, usable_capacity
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.steps import EngineCapacity
from messages.wire.arrays import int32s
from tests.support.memory_cluster import MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench


def capacity_of(n_pages: int = 64, max_length: int = 100) -> EngineCapacity:
    return EngineCapacity(
        n_pages=n_pages,
        n_slots=4,
        max_length=max_length,
        max_step_tokens=64,
        max_lease_steps=1,
        vocabulary=50,
        device="none",
    )


@pytest.mark.parametrize(
    ("ids", "n_pages", "code", "detail"),
    [
        ([], 64, "invalid", "tokens: expected at least 1, got 0"),
        ([1, 50], 64, "invalid", "tokens: expected ids from 0 to 49, got 50"),
        ([-1], 64, "invalid", "tokens: expected ids from 0 to 49, got -1"),
        ([1] * 100, 64, "too_long", "the prompt: expected fewer than 100 tokens (context length), got 100"),
        ([1] * 100, 2, "too_long", "the prompt: expected fewer than 100 tokens (context length), got 100"),
        ([1] * 32, 2, "too_large_for_memory", "the prompt: expected fewer than 32 tokens (2 pages of memory), got 32"),
    ],
)
def test_what_can_never_run_is_refused_for_good(ids: list[int], n_pages: int, code: str, detail: str) -> None:
    refusal = unfit(7, int32s(ids), capacity_of(n_pages))
    assert refusal is not None
    assert (refusal.attempt, refusal.code, refusal.detail, refusal.retryable) == (7, code, detail, False)


def test_what_just_fits_is_welcome() -> None:
    assert unfit(7, int32s([49] * 99), capacity_of()) is None
    assert unfit(7, int32s([0] * 31), capacity_of(2)) is None
    assert capacity_of(2).max_sequence_tokens == 32


def test_a_full_queue_is_refused_for_now() -> None:
    submit = Submit(
        attempt=7,
        request="r",
        tokens=int32s([1]),
        n_prompt=1,
        sampling=Sampling(),
        terms=Terms(max_tokens=1),
    )
    assert judge(submit, capacity_of(), 9, 10) is None
    refusal = judge(submit, capacity_of(), 10, 10)
    assert refusal is not None
    assert (refusal.code, refusal.retryable) == ("overloaded", True)
    assert refusal.detail == "queue: expected fewer than 10 waiting sequences, got 10"


async def test_a_flood_that_fills_the_queue_keeps_no_other_caller_out(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, max_waiting=4)  # no gang is there, so all wait
    await cluster.wait_until(lambda: "scheduler/0" in cluster.up)
    cluster.introduce(bench.gateway)
    await cluster.settle(20)
    for number in range(8):
        bench.gateway.submit(number, [1], 4, caller=b"flood")
    bench.gateway.submit(8, [1], 4, caller=b"small")
    await cluster.wait_until(lambda: len(bench.gateway.taken) + len(bench.gateway.refused) == 9)
    assert sorted(bench.gateway.refused) == [4, 5, 6, 7]


@pytest.mark.parametrize(("configured", "usable"), [(0, 64), (16, 16), (1000, 64)])
def test_the_token_budget_of_a_step_is_the_lower_one(configured: int, usable: int) -> None:
    assert usable_capacity(capacity_of(), configured).max_step_tokens == usable
