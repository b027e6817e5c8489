"""A caller's running sequences hold at most its part of the pages, and others are not disturbed."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from actors.scheduler.admission import judge, within_budget
from actors.scheduler.sequences.policy import PolicyName
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.wire.arrays import int32s
from tests.support.depth import at_depth
from tests.support.planner_bench import PlannerBench, capacity_of

BUDGET = 20  # pages


def held(bench: PlannerBench) -> int:
    return sum(len(s.pages) - s.n_shared for s in bench.queues.running if s.terms.caller == b"little")


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("policy", PolicyName)
def test_the_budget_holds_in_thousands_of_random_steps(policy: PolicyName) -> None:
    rng = random.Random(policy.value)
    bench = PlannerBench({"policy": policy.value}, n_pages=5 * BUDGET, n_slots=12, max_step_tokens=200, max_lease_steps=4)
    ended: Counter[bytes] = Counter()
    for _ in range(at_depth(2500)):
        if len(bench.queues.waiting) < 12:
            caller = rng.choice([b"little", b"others"])
            share = {"page_share": 0.2} if caller == b"little" else {}
            tokens = [1] * rng.choice([0, 16, 32]) + [rng.randrange(2, 90)] * rng.randint(1, 90)
            bench.add(tokens, rng.randint(1, 80), caller=caller, priority=rng.randint(0, 2), **share)
        bench.plan()
        assert held(bench) <= BUDGET
        if bench.plans and rng.random() < 0.9:
            bench.apply()
        if rng.random() < 0.002:
            bench.die()
        bench.now_s += 0.01
        ended.update(sequence.terms.caller for sequence in bench.ended)
        bench.ended.clear()
    assert min(ended[b"little"], ended[b"others"]) > at_depth(2500) / 25


def test_sequences_over_the_budget_wait_while_those_of_others_enter() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=40, n_slots=8, max_step_tokens=400)
    little = [bench.add([number] * 60, caller=b"little", page_share=0.25) for number in range(4)]
    other = bench.add([9] * 60, caller=b"other")
    bench.plan()
    assert [sequence.state.value for sequence in little] == ["running", "running", "waiting", "waiting"]
    assert other.state.value == "running"


def test_a_prompt_that_exceeds_the_budget_is_refused() -> None:
    capacity = capacity_of(n_pages=64)

    def submit(page_share: float) -> Submit:
        terms = Terms(page_share=page_share)
        return Submit(attempt=1, request="r", tokens=int32s([1] * 100), n_prompt=100, sampling=Sampling(), terms=terms)

    assert judge(submit(1.0), capacity, 0, 10) is None
    refusal = judge(submit(0.05), capacity, 0, 10)
    assert refusal is not None
    assert refusal.code == "too_large_for_memory"
    assert within_budget(capacity, Terms(page_share=0.05)).max_sequence_tokens == 48
