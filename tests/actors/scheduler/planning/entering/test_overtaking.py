"""Small sequences pass a large one that waits for pages, until it is their turn to wait."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.sequences.policy import PolicyName
from actors.scheduler.sequences.sequence import Sequence, State
from messages.generation.sequences import Suspicion
from tests.support.depth import examples
from tests.support.planner_bench import PlannerBench


def blocked_bench(most_passed: int = 3) -> tuple[PlannerBench, Sequence]:
    """A bench with few pages in which a large sequence waits for them."""
    bench = PlannerBench({"plans_in_flight": 1, "most_passed": most_passed}, n_pages=8, n_slots=4)
    bench.add([1] * 40, max_tokens=200)
    bench.plan()
    bench.apply()
    return bench, bench.add([2] * 90)  # six pages


def pass_one(bench: PlannerBench, number: int) -> Sequence:
    small = bench.add([10 + number] * 2, max_tokens=1)
    bench.plan()
    bench.apply()
    return small


def test_so_many_small_ones_pass_and_then_the_large_one_is_next() -> None:
    bench, large = blocked_bench()
    assert [pass_one(bench, number).state for number in range(5)] == [*[State.ENDED] * 3, *[State.WAITING] * 2]
    assert large.state is State.WAITING
    bench.gang.release(bench.queues.running[0])
    bench.plan()
    assert large.state is State.RUNNING


def test_after_two_seconds_nobody_passes() -> None:
    bench, _ = blocked_bench()
    assert pass_one(bench, 1).state is State.ENDED
    bench.now_s = 2.5
    assert pass_one(bench, 2).state is State.WAITING


def test_a_large_one_whose_gateway_has_no_credit_keeps_no_pages_from_others() -> None:
    bench, large = blocked_bench(most_passed=0)
    assert pass_one(bench, 1).state is State.WAITING
    assert bench.plan(lambda sequence: sequence is not large) is not None
    bench.apply()
    assert len(bench.queues.waiting) == 1, "the small one has entered"


def test_a_suspect_that_is_computed_alone_waits_for_nobody() -> None:
    bench, large = blocked_bench(most_passed=0)
    assert pass_one(bench, 1).state is State.WAITING
    suspect = bench.add([3] * 2, max_tokens=1)
    bench.gang.probation.arrived(suspect, Suspicion(deaths=2, certain=0, reach=3, passed=0))
    bench.plan()
    bench.apply()
    assert (suspect.state, large.state) == (State.ENDED, State.WAITING)


@given(st.integers(0, 2**32), st.sampled_from(PolicyName))
@examples(10)
def test_a_large_one_starts_whatever_small_ones_arrive(seed: int, policy: PolicyName) -> None:
    rng = random.Random(seed)
    bench = PlannerBench({"plans_in_flight": 1, "policy": policy.value}, n_pages=16, n_slots=8)
    large = bench.add([1] * 230, max_tokens=2, caller=b"large")
    for _ in range(2000):
        if len(bench.queues.waiting) < 10:
            bench.add([rng.randrange(2, 90)] * rng.randint(1, 30), max_tokens=rng.randint(1, 20), caller=rng.randbytes(1))
        if bench.plan() is not None:
            bench.apply()
        bench.now_s += 0.02
        if large.state is State.ENDED:
            break
    assert large.state is State.ENDED
