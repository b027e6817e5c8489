"""What step times are learnt, and what limits follow."""

from __future__ import annotations

from gpu_workers.process.step_times import StepTimes, shape_of
from messages.steps import Plan
from messages.wire.arrays import EMPTY_I32, int32s

SHAPE = (1, 1, 4)


def plan(starts: list[int], counts: list[int]) -> Plan:
    rows = int32s(range(len(starts)))
    return Plan(
        epoch=1, step=1, n_steps=1, new=[], new_tokens=EMPTY_I32, page_slots=EMPTY_I32, page_indices=EMPTY_I32,
        page_ids=EMPTY_I32, row_slots=rows, row_starts=int32s(starts), row_counts=int32s(counts), row_samples=rows,
    )  # fmt: skip


def learnt(*times_s: float, least_s: float = 0.5) -> float:
    times = StepTimes(least_s)
    for took_s in times_s:
        times.add(SHAPE, took_s)
    return times.limit_s(SHAPE)


def test_the_first_steps_of_a_shape_have_no_limit() -> None:
    assert learnt() == 0.0
    assert learnt(1.0, 1.0, 1.0) == 0.0
    assert learnt(1.0, 1.0, 1.0, 1.0) > 0.0


def test_a_step_may_take_twenty_times_as_long_as_the_longest_of_late() -> None:
    assert learnt(9.0, 0.1, 0.2, 0.1, 0.2) == 20 * 0.2
    assert learnt(9.0, 0.1, 9.0, *[0.1] * 1000) == 20 * 0.1


def test_no_limit_is_below_the_least() -> None:
    assert learnt(*[0.001] * 9) == 0.5
    assert learnt(*[0.001] * 9, least_s=5.0) == 5.0


def test_each_shape_has_a_limit_of_its_own() -> None:
    times = StepTimes(0.5)
    for _ in range(9):
        times.add(SHAPE, 0.1)
    assert times.limit_s((1, 12, 12)) == 0.0


def test_shapes_are_told_apart_by_rows_tokens_and_context() -> None:
    shapes = [shape_of(plan(*rows)) for rows in (([5], [1]), ([5, 5], [1, 1]), ([0], [64]), ([5000], [1]))]
    assert len(set(shapes)) == 4
    assert shape_of(plan([5], [1])) == shape_of(plan([6], [1]))
    assert shape_of(plan([], [])) == (0, 0, 0)
    assert all(type(part) is int for part in shape_of(plan([5], [1])))
