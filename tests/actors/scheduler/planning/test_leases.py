"""How many steps a plan grants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.scheduler.sequences.sequence import Sequence
from tests.support.planner_bench import PlannerBench


@pytest.mark.parametrize(("n_left", "n_steps"), [(9, 4), (4, 4), (3, 3), (1, 1)])
def test_a_lease_is_as_long_as_the_shortest_sequence_allows(n_left: int, n_steps: int) -> None:
    bench = PlannerBench({"plans_in_flight": 1}, max_lease_steps=4)
    bench.add([1, 2], max_tokens=50)
    bench.add([3, 4], max_tokens=n_left + 1)
    bench.plan()
    bench.apply()
    planned = bench.plan()
    assert planned is not None
    assert planned.plan.n_steps == n_steps
    assert planned.n_tokens == 2 * n_steps


def steps_of(bench: PlannerBench, may_run: Callable[[Sequence], bool] = lambda sequence: True) -> int:
    planned = bench.plan(may_run)
    assert planned is not None
    return planned.plan.n_steps


def test_no_lease_while_a_sequence_waits_that_could_enter() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, max_lease_steps=4, n_slots=3)
    bench.add([1, 2], max_tokens=50)
    bench.plan()
    bench.apply()
    bench.add([3, 4])
    assert steps_of(bench, lambda sequence: sequence.number == 1) == 1  # its gateway may get credit at any time
    bench.apply()
    assert steps_of(bench) == 1  # it enters
    bench.apply()
    assert steps_of(bench) == 4


@pytest.mark.parametrize(("fields", "waiting"), [({"n_slots": 1}, [3, 4]), ({"n_pages": 4}, [7] * 60)])
def test_a_lease_is_granted_while_nobody_who_waits_could_enter(fields: dict[str, int], waiting: list[int]) -> None:
    bench = PlannerBench({"plans_in_flight": 1}, max_lease_steps=4, **fields)
    bench.add([1, 2], max_tokens=20)
    bench.plan()
    bench.apply()
    bench.add(waiting)
    assert steps_of(bench) == 4
