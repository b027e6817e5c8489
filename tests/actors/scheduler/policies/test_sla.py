"""Deadlines: who is first, who is late, and what becomes of it."""

from __future__ import annotations

import math
from typing import Any

from actors.scheduler.policies.sla import SlaPolicy
from actors.scheduler.sequences.sequence import Sequence, State
from tests.support.planner_bench import PlannerBench


def bench_of(n_slots: int = 1) -> PlannerBench:
    return PlannerBench({"plans_in_flight": 1, "policy": "sla"}, n_slots=n_slots)


def steps(bench: PlannerBench, n: int, step_s: float = 0.0) -> None:
    for _ in range(n):
        bench.plan()
        bench.now_s += step_s
        for advance in bench.apply():
            timeline = advance.row.sequence.timeline
            timeline.first_token_s = timeline.first_token_s or bench.now_s


def numbers(bench: PlannerBench) -> list[int]:
    return [sequence.number for sequence in bench.queues.waiting.first(10)]


def busy(**terms: Any) -> tuple[PlannerBench, Sequence]:
    """A bench whose only slot is taken, by a sequence with these terms."""
    bench = bench_of()
    first = bench.add([1] * 4, max_tokens=200, **terms)
    steps(bench, 20)
    return bench, first


def test_the_nearest_deadline_is_first_and_those_without_one_are_due_after_a_minute() -> None:
    bench, _ = busy(deadline_ms=1000.0)
    asked: list[dict[str, Any]] = [{}, {"deadline_ms": 30_000.0}, {"ttft_ms": 5000.0}, {"deadline_s": 10.0}]
    for terms in [*asked, dict[str, Any](deadline_ms=90_000.0)]:
        bench.add([2] * 4, **terms)
    assert numbers(bench) == [4, 5, 3, 2, 6]


def test_the_time_of_the_answer_counts_once_it_is_known() -> None:
    bench = bench_of()
    bench.add([1] * 4, max_tokens=5, deadline_ms=60_000.0)
    steps(bench, 5, step_s=0.5)
    bench.add([2] * 4, max_tokens=10, deadline_ms=20_000.0)  # takes about 5 s
    bench.add([3] * 4, max_tokens=30, deadline_ms=25_000.0)  # takes about 15 s
    assert numbers(bench) == [3, 2]


def test_a_late_one_comes_after_all_that_can_be_in_time_and_is_told_once() -> None:
    bench, _ = busy(deadline_ms=1000.0)
    late, other = bench.add([2] * 4, deadline_ms=500.0), bench.add([3] * 4, deadline_ms=20_000.0)
    assert bench.queues.waiting.first(2) == [late, other]
    bench.now_s = 0.6
    assert bench.queues.policy.take_late() == [late]
    assert bench.queues.policy.take_late() == []
    assert bench.queues.waiting.first(2) == [other, late]
    bench.now_s = 100.0
    assert bench.queues.policy.take_late() == [other]
    assert bench.queues.policy.n_late == 2
    bench.run()
    assert {late, other} <= set(bench.ended)


def test_time_before_the_scheduler_counts() -> None:
    bench, _ = busy(deadline_ms=1000.0)
    first, second = bench.add([2] * 4, deadline_ms=5000.0), bench.add([3] * 4, deadline_ms=6000.0)
    bench.queues.finish(second)
    second = bench.add([3] * 4, deadline_ms=6000.0)
    bench.queues.finish(second)
    again = bench.add([3] * 4, deadline_ms=6000.0)
    assert bench.queues.waiting.first(3) == [first, again]
    bench.queues.waiting.remove(again)
    again.age_s = 3.0
    bench.queues.policy.ended(again)
    bench.queues.policy.arrived(again)
    bench.queues.waiting.add(again)
    assert bench.queues.waiting.first(3) == [again, first]


def test_one_that_is_nearly_late_displaces_one_that_has_no_deadline_or_much_time() -> None:
    for terms, gives_way in (({}, True), ({"deadline_ms": 1e6}, True), ({"deadline_ms": 4000.0}, False)):
        bench, first = busy(**terms)
        waiting = bench.add([2] * 4, ttft_ms=3000.0)
        steps(bench, 1)
        assert waiting.state is State.WAITING
        bench.now_s = 2.9
        steps(bench, 1)
        assert (first.state is State.WAITING) == gives_way
        assert (waiting.state is State.RUNNING) == gives_way


def test_the_policy_forgets_sequences_that_have_ended() -> None:
    bench = bench_of()
    for _ in range(5):
        bench.add([1] * 4, ttft_ms=10.0, deadline_ms=1000.0)
    bench.now_s = 0.5
    bench.run()
    policy = bench.queues.policy
    assert isinstance(policy, SlaPolicy)
    assert not policy._due_s
    assert not policy._deadline_s
    assert not policy._has_terms


def test_a_step_lasts_no_longer_than_the_tightest_answer_can_wait_for_a_token() -> None:
    bench, first = busy(deadline_ms=10_000.0)
    assert first.n_generated == 20
    policy = bench.queues.policy
    assert abs(policy.longest_step_s(bench.queues.running) - 10.0 / 180) < 1e-9
    bench.now_s = 11.0  # too late: it holds nobody up
    assert policy.longest_step_s(bench.queues.running) == math.inf
