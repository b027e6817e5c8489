"""A plan is held back while urgent requests may come, until the steps in flight have nearly ended."""

from __future__ import annotations

import pytest

from actors.scheduler.planning.plan_builder import PlannedStep
from messages.steps import Result
from messages.wire.arrays import int32s
from tests.support.planner_bench import PlannerBench

_STEP_S = 0.02


def bench_of(priority: int) -> PlannerBench:
    """A bench with a long answer of priority 5 in its slot, and one of this priority, whose steps have been measured."""
    bench = PlannerBench({"policy": "priority", "plans_in_flight": 2})
    bench.add([1] * 4, max_tokens=100, priority=5)
    for _ in range(8):
        planned = bench.plan()
        assert planned is not None
        done(bench, planned)
    bench.add([2] * 4, max_tokens=100, priority=priority)
    for _ in range(2):
        planned = bench.plan()
        assert planned is not None
        done(bench, planned)
    return bench


def done(bench: PlannerBench, planned: PlannedStep) -> None:
    """The device has computed this plan."""
    bench.now_s += _STEP_S
    bench.plans.popleft()
    rows, step = planned.sampling, planned.plan
    slots, ones, ids = int32s([row.slot for row in rows]), int32s([1] * len(rows)), int32s([7] * len(rows))
    bench.gang.apply(Result(epoch=step.epoch, step=step.step, slots=slots, counts=ones, ids=ids, compute_s=_STEP_S))


def test_the_second_plan_waits_until_a_round_trip_before_the_first_one_ends() -> None:
    bench = bench_of(priority=0)
    assert bench.plan() is not None
    assert bench.plan() is None
    wait_s = bench.gang.hold.take_wait_s()
    assert 0.5 * _STEP_S < wait_s < _STEP_S - 0.0025
    assert bench.gang.hold.take_wait_s() == 0.0
    bench.now_s += wait_s
    assert bench.plan() is not None


@pytest.mark.parametrize("priority", [5, 9])
def test_nothing_waits_while_no_request_is_more_urgent_than_those_before_it(priority: int) -> None:
    bench = bench_of(priority)
    assert bench.plan() is not None
    assert bench.plan() is not None
    assert bench.gang.hold.take_wait_s() == 0.0


def test_nothing_waits_a_minute_after_the_last_urgent_request() -> None:
    bench = bench_of(priority=0)
    bench.now_s += 61.0
    assert bench.plan() is not None
    assert bench.plan() is not None


def test_a_device_that_has_waited_for_a_plan_gets_the_next_ones_sooner() -> None:
    bench = bench_of(priority=0)
    waits_s: list[float] = []
    for _ in range(2):
        planned = bench.plan()
        assert planned is not None
        assert bench.plan() is None
        waits_s.append(bench.gang.hold.take_wait_s())
        bench.now_s += 0.003  # of the host
        done(bench, planned)
    assert waits_s[1] < waits_s[0] - 0.002
