"""Deadlines: who is first, who is late, and what becomes of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

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


def serve(bench: PlannerBench, sequence: Sequence, pause_s: float = 0.0, pause_at: int = -1) -> None:
    """Compute until this one has ended or is refused, as everybody who is late. In step `pause_at` the process stands still."""
    n_steps = 0
    while sequence.state is not State.ENDED:
        for late in bench.queues.policy.take_late():
            bench.queues.finish(late)
        if sequence.state is not State.ENDED:
            steps(bench, 1, step_s=0.01 + (pause_s if n_steps == pause_at else 0.0))
        n_steps += 1


def n_refused_until_one_is_served(bench: PlannerBench, terms: dict[str, Any], most: int = 200) -> int:
    """Clients ask one after the other. Returns how many are refused before one is served; `most` if nobody is."""
    for number in range(most):
        sequence = bench.add([number % 90] * 4, max_tokens=20, **terms)
        serve(bench, sequence)
        if sequence in bench.ended:
            return number
    return most


@pytest.mark.parametrize("terms", [{"ttft_ms": 5000.0}, {"deadline_ms": 5000.0}])
@pytest.mark.parametrize("pause_at", [0, 1])
def test_a_long_pause_is_no_reason_to_refuse_for_ever(terms: dict[str, Any], pause_at: int) -> None:
    """Who is refused measures nothing, so what was measured while the process stood still must not last."""
    bench = bench_of()
    serve(bench, bench.add([1] * 4, max_tokens=20, **terms), 600.0, pause_at)
    assert n_refused_until_one_is_served(bench, terms) < 100
    assert [n_refused_until_one_is_served(bench, terms) for _ in range(5)] == [0] * 5
