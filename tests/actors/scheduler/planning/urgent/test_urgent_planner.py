"""Urgent plans beside those in flight: what they may take, in which order results may come, and what a death leaves."""

from __future__ import annotations

import random

import pytest

from actors.scheduler.planning.plan_builder import PlannedStep
from messages.steps import PAGE_TOKENS
from tests.support.depth import at_depth
from tests.support.planner_bench import PlannerBench

_LOW, _HIGH = 9, 0


def saturated(**settings: object) -> PlannerBench:
    """Sequences of a low priority in all slots but the kept one, after an urgent one; two plans are in flight."""
    bench = PlannerBench({"policy": "priority", "ageing_s": 0.0} | settings, n_slots=8, n_pages=256, beside_tokens=64)
    bench.gang.hold.is_on = lambda: False  # type: ignore[method-assign]  # the tests say when a plan is made
    for number in range(9):
        bench.add([number + 1] * 20, max_tokens=100, priority=_LOW)
    bench.add([50] * 3, max_tokens=1, priority=_HIGH)  # from now on urgent ones are expected
    bench.plan()
    while len(bench.ended) < 1:
        bench.apply()
        bench.plan()
    for _ in range(8):
        bench.apply()
        plan_ahead(bench)
    assert len(bench.plans) == 2
    return bench


def plan_ahead(bench: PlannerBench) -> None:
    """Plan until enough is in flight."""
    while len(bench.plans) < 2:
        assert bench.plan() is not None


def test_an_urgent_prompt_goes_beside_what_is_in_flight() -> None:
    bench = saturated()
    urgent = bench.add([60] * 40, max_tokens=3, priority=_HIGH)
    before = [set(planned.written_pages()) for planned in bench.plans]
    slots = {slot for planned in bench.plans for slot in planned.plan.row_slots.tolist()}
    planned = bench.plan()
    assert planned is not None
    assert planned.plan.is_urgent
    assert bench.rows(planned) == [(urgent.number, 0, 40, True)]
    assert not set(planned.written_pages()) & set().union(*before)
    assert urgent.slot not in slots
    assert planned.n_displaced == planned.n_preempted == 0
    assert bench.plan() is None  # one at a time, and enough others are in flight
    advances = bench.apply(at=2)
    assert [(one.row.sequence.number, one.first, len(one.ids)) for one in advances] == [(urgent.number, 0, 1)]
    bench.apply()
    plan_ahead(bench)
    assert urgent.number in [row.sequence.number for row in bench.plans[-1].rows]  # it goes on with the others
    bench.run()
    assert urgent in bench.ended
    bench.gang.audit()


@pytest.mark.parametrize("case", ["cannot", "off", "long", "logprobs", "equal"])
def test_others_go_the_usual_way(case: str) -> None:
    bench = saturated(**({"urgent_tokens": 0} if case == "off" else {}))
    if case == "cannot":
        bench = PlannerBench({"policy": "priority"}, n_slots=4)
        bench.add([1] * 20, max_tokens=50, priority=_LOW)
        bench.plan()
        bench.plan()
    terms = {"prompt_logprobs": 0} if case == "logprobs" else {}
    n_prompt, priority = 70 if case == "long" else 20, _LOW if case == "equal" else _HIGH
    bench.add([60] * n_prompt, priority=priority, **terms)
    planned = bench.plan()
    assert planned is None or not planned.plan.is_urgent


def test_its_result_comes_before_those_of_later_plans() -> None:
    bench = saturated()
    bench.add([60] * 40, max_tokens=3, priority=_HIGH)
    assert bench.plan() is not None
    bench.apply()
    plan_ahead_one(bench)
    bench.apply()
    with pytest.raises(ValueError, match="step: expected"):
        bench.gang.apply(bench._result(bench.plans[1], 0))


def plan_ahead_one(bench: PlannerBench) -> PlannedStep:
    planned = bench.plan()
    assert planned is not None
    assert not planned.plan.is_urgent
    return planned


def test_a_prefix_is_shared_only_when_it_is_there() -> None:
    bench = saturated()
    shared = list(range(100, 100 + 2 * PAGE_TOKENS))
    first = bench.add([*shared, 1, 2, 3], max_tokens=2, priority=_HIGH)
    assert bench.plan() is not None
    bench.apply(at=2)  # the pages of the urgent plan count once all plans before it have been applied
    second = bench.add([*shared, 4, 5, 6], max_tokens=2, priority=_HIGH)
    planned = bench.plan()
    if planned is not None and planned.plan.is_urgent:
        assert bench.rows(planned) == [(second.number, 0, len(shared) + 3, True)]
    bench.run()
    third = bench.add([*shared, 7, 8, 9], max_tokens=2, priority=_HIGH)
    bench.add([80] * 20, max_tokens=50, priority=_LOW)
    assert third.known
    bench.run()
    assert {first, second, third} <= set(bench.ended)


def test_a_death_makes_both_steps_suspect_and_keeps_what_was_shown() -> None:
    bench = saturated()
    urgent = bench.add([60] * 40, max_tokens=9, priority=_HIGH)
    assert bench.plan() is not None
    running = {row.sequence.number for planned in bench.plans for row in planned.rows}
    assert urgent.number in running
    assert {row.sequence.number for row, _ in bench.gang.tracker.in_flight()} == running
    bench.apply(at=2)
    assert urgent.n_generated == 1
    bench.die()
    assert urgent.n_generated == 1
    assert urgent.planned <= 40
    bench.run()
    assert urgent in bench.ended
    bench.gang.audit()


@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(at_depth(20)))
def test_random_orders_of_results(seed: int) -> None:
    """The bench checks each page that a row reads, and what the ledger says after deaths."""
    rng = random.Random(seed)
    settings = {"policy": "priority", "ageing_s": 0.0, "plans_in_flight": rng.choice([1, 2, 3])}
    bench = PlannerBench(
        settings, n_slots=rng.choice([3, 8, 16]), n_pages=rng.choice([24, 48, 200]), max_lease_steps=rng.choice([1, 3]),
        max_step_tokens=rng.choice([32, 64]), beside_tokens=64,
    )  # fmt: skip
    shared, added = [rng.randrange(100) for _ in range(48)], 0
    for _ in range(400):
        bench.now_s += rng.choice([0.0, 0.0, 0.001, 1.0])
        move = rng.random()
        if move < 0.2 and len(bench.queues) < 20:
            prompt = shared[: rng.choice([0, 16, 20, 48])] + [rng.randrange(100) for _ in range(rng.randint(1, 30))]
            bench.add(prompt, max_tokens=rng.randint(1, 40), priority=rng.choice([_LOW, _LOW, _HIGH]))
            added += 1
        elif move < 0.6:
            bench.plan()
        elif move < 0.94:
            apply_any(bench, rng)
        elif move < 0.98 and bench.queues.running:
            bench.gang.release(rng.choice(bench.queues.running))  # its client has left, and plans in flight have its rows
            added -= 1
        else:
            bench.die(generation=1 if rng.random() < 0.7 else 2 + added)
    bench.now_s += 100.0
    while bench.plan() is not None or bench.plans:
        if bench.plans:
            apply_any(bench, rng)
    assert len(bench.ended) == added
    bench.gang.audit()


def apply_any(bench: PlannerBench, rng: random.Random) -> None:
    """Apply a plan whose results may come now."""
    urgent = next((at for at, planned in enumerate(bench.plans) if planned.plan.is_urgent), None)
    if bench.plans:
        bench.apply(at=urgent if urgent is not None and rng.random() < 0.5 else 0)
