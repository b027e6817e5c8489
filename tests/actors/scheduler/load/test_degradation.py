"""Levels of degradation: they follow the wait, one at a time, and do not swing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.load.degradation import FALL_S, RISE_S, Degradation
from messages.generation.replica_load import DegradationLevel

_STEPS = st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(-5.0, 10.0)), max_size=60)


def after(degradation: Degradation, wait_s: float, from_s: float, to_s: float) -> DegradationLevel:
    """The level after this wait has lasted, looked at ten times a second."""
    for tenth in range(round(from_s * 10), round(to_s * 10) + 1):
        degradation.update(wait_s, tenth / 10)
    return degradation.level


@pytest.mark.parametrize(("wait_s", "level"), [(1.9, 0), (2.0, 1), (3.9, 1), (4.0, 2), (8.0, 3), (16.0, 4), (1e9, 4)])
def test_a_lasting_wait_has_its_level(wait_s: float, level: int) -> None:
    assert after(Degradation(2.0), wait_s, 0.0, 10.0) == level


def test_it_rises_and_falls_by_one_level_at_a_time() -> None:
    degradation = Degradation(1.0)
    assert after(degradation, 100.0, 0.0, RISE_S - 0.1) == 0
    assert after(degradation, 100.0, RISE_S, RISE_S) == 1
    assert after(degradation, 100.0, RISE_S + 0.1, 2 * RISE_S) == 2
    assert after(degradation, 0.0, 10.0, 10.0 + FALL_S - 0.1) == 2
    assert after(degradation, 0.0, 10.0 + FALL_S, 10.0 + FALL_S) == 1
    assert after(degradation, 0.0, 20.0, 20.0 + FALL_S) == 0


def test_a_wait_between_the_limits_keeps_the_level() -> None:
    degradation = Degradation(2.0)
    after(degradation, 4.0, 0.0, 5.0)
    for second in range(5, 100):  # the threshold of level 3 is 8 s; half of that of level 2 is 2 s
        assert after(degradation, 2.1 if second % 2 else 7.9, second, second + 1) == DegradationLevel.FEWER_ANSWERS


def test_peaks_that_do_not_last_change_nothing() -> None:
    degradation = Degradation(2.0)
    for tenth in range(1000):
        assert degradation.update(100.0 if tenth % 4 else 0.0, tenth / 10) == 0


def test_short_peaks_keep_no_level() -> None:
    """A new sequence waits for a step or two, which must not begin the three seconds anew."""
    degradation = Degradation(2.0)
    after(degradation, 5.0, 0.0, 5.0)
    assert degradation.level == DegradationLevel.FEWER_ANSWERS
    levels = [degradation.update(3.0 if tenth % 10 < 2 else 0.0, 5.1 + tenth / 10) for tenth in range(200)]
    assert levels[-1] == DegradationLevel.NORMAL
    assert levels == sorted(levels, reverse=True)


@given(_STEPS, st.floats(0.1, 10.0))
def test_whatever_the_clock_does_it_changes_by_one_and_not_too_soon(steps: list[tuple[float, float]], first_s: float) -> None:
    degradation, now_s, changed_s = Degradation(first_s), 0.0, -1e9
    for wait_s, passed_s in steps:
        before, now_s = degradation.level, now_s + passed_s
        changed_s = min(changed_s, now_s)  # the clock has gone back
        level = degradation.update(wait_s, now_s)
        assert abs(level - before) <= 1
        if level > before:
            assert wait_s >= degradation.threshold_s(level)
            assert now_s - changed_s >= RISE_S
        elif level < before:
            assert wait_s < degradation.threshold_s(before)
            assert now_s - changed_s >= FALL_S
        if level != before:
            changed_s = now_s


@given(_STEPS)
def test_without_a_threshold_there_is_no_level(steps: list[tuple[float, float]]) -> None:
    degradation = Degradation(0.0)
    assert all(degradation.update(wait_s, now_s) == DegradationLevel.NORMAL for wait_s, now_s in steps)
