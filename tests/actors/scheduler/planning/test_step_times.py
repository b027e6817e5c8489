"""What is expected of a step, from the steps before it and from the warm-up."""

from __future__ import annotations

from actors.scheduler.planning.step_times import StepTimes, shape_of
from messages.steps import StepTime

SHAPE = shape_of(1, 1, 8)


def learnt(*times_s: float) -> StepTimes:
    times = StepTimes()
    for took_s in times_s:
        times.add(SHAPE, took_s)
    return times


def warmed_up(rows: int, tokens: int, context: int, took_s: float) -> StepTimes:
    times = StepTimes()
    times.warmed_up([StepTime(rows=rows, tokens=tokens, context=context, took_s=took_s)])
    return times


def test_nothing_is_expected_before_anything_is_known() -> None:
    assert learnt().expected_s(SHAPE) == 0.0


def test_the_first_step_of_a_shape_may_have_compiled() -> None:
    assert learnt(9.0).expected_s(SHAPE) == 0.0
    assert learnt(9.0, 0.1).expected_s(SHAPE) == 0.1


def test_a_step_takes_as_long_as_the_longest_of_late() -> None:
    assert learnt(9.0, 0.1, 0.2, 0.2).expected_s(SHAPE) == 0.2
    assert learnt(9.0, 0.1, 9.0, *[0.1] * 1000).expected_s(SHAPE) == 0.1


def test_a_wrong_clock_teaches_nothing() -> None:
    assert learnt(0.1, 0.1, float("nan"), -1.0, float("inf")).expected_s(SHAPE) == 0.1


def test_a_step_without_duration_is_not_an_unknown_one() -> None:
    assert learnt(0.0, 0.0, 0.0).expected_s(SHAPE) > 0.0


def test_no_step_of_a_gang_that_has_warmed_up_is_unknown() -> None:
    times = warmed_up(1, 8, 8, took_s=0.01)
    for shape in (shape_of(1, 1, 5000), shape_of(256, 256, 300), shape_of(1, 2048, 2048), shape_of(0, 0, 0)):
        assert times.expected_s(shape) >= 0.01


def test_more_tokens_and_a_longer_context_may_take_longer() -> None:
    times = warmed_up(1, 8, 8, took_s=0.01)
    assert times.expected_s(shape_of(1, 64, 8)) == 0.08
    assert times.expected_s(shape_of(8, 8, 8)) == 0.08
    assert 0.02 < times.expected_s(shape_of(1, 8, 1023)) < 0.04
    assert times.expected_s(shape_of(1, 1, 1)) == 0.01


def test_the_nearest_known_shape_counts() -> None:
    times = warmed_up(1, 8, 8, took_s=0.01)
    times.warmed_up([StepTime(rows=1, tokens=2048, context=2048, took_s=0.3)])
    assert times.expected_s(shape_of(1, 1500, 1500)) == 0.3
    assert times.expected_s(shape_of(1, 16, 8)) == 0.02


def test_steps_count_more_than_a_later_warm_up() -> None:
    times = learnt(0.1, 0.1)
    times.warmed_up([StepTime(rows=1, tokens=1, context=8, took_s=5.0)])
    assert times.expected_s(SHAPE) == 0.1
