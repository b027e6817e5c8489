"""A first token that waits for a slot is no fault of its replica: what holds the slots counts as work before it, at the rate
of the quickest replica."""

from __future__ import annotations

import pytest

from actors.gateway.dispatch.breakers.breaker import BreakerState
from tests.support.dispatch.dispatcher_bench import DispatcherBench

A, B = "scheduler/0", "scheduler/1"
_PROMPT = [1] * 96


def report(bench: DispatcherBench, name: str, waiting: int, tokens_per_s: float) -> None:
    """A replica has long answers in all of its slots, and so many short prompts wait for a slot."""
    bench.report(name, waiting=waiting, running=8, waiting_tokens=100 * waiting, running_tokens=2_000, rate=tokens_per_s)


@pytest.mark.parametrize(
    ("waiting", "rate_of_a", "rate_of_b", "is_late"),
    [
        (0, 400.0, 400.0, True),  # there are free slots, and nobody gets a token
        (80, 400.0, 400.0, False),  # 10,000 tokens take 25 s
        (80, 40.0, 4_000.0, True),  # they take 2.5 s at the other replica, and 250 s here
    ],
)
def test_what_waits_for_a_slot_may_wait_for_those_that_run(
    waiting: int, rate_of_a: float, rate_of_b: float, *, is_late: bool
) -> None:
    bench = DispatcherBench(A, B)
    balancer = bench.dispatcher.balancer
    for _ in range(40):  # each replica learns that a first token takes 10 ms
        [sequence] = bench.submit(_PROMPT)
        bench.post.clock_s += 0.01
        sequence.accept(0, [5])
        balancer.began(sequence)
        bench.dispatcher.remove(sequence, None)
    report(bench, A, waiting, rate_of_a)
    report(bench, B, waiting, rate_of_b)
    for _ in range(12):
        bench.submit(_PROMPT)
    for _ in range(120):
        bench.post.clock_s += 0.25
        balancer.look(A, lambda attempt: 0)
    assert (balancer.health.n_openings(A) > 0) is is_late
    assert (balancer.health.state(A, bench.post.clock_s) is not BreakerState.CLOSED) is is_late
