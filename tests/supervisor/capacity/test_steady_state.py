"""Replicas under a steady load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.capacity.replica_times import MeasuredTimes, interpolated
from supervisor.capacity.steady_state import ReplicaRoom, most_rate_per_s, steady_state
from supervisor.capacity.workload import OfferedLoad

TIMES = MeasuredTimes([(1, 0.010), (8, 0.012), (64, 0.040)], prompt_token_s=1e-4, prompt_start_s=0.002)
ROOM = ReplicaRoom(64)
LOADS = st.builds(OfferedLoad, st.floats(0.01, 0.99), st.integers(1, 4000), st.integers(1, 1000))


@given(LOADS)
def test_arrivals_times_the_time_of_an_answer_is_the_number_of_sequences(part: OfferedLoad) -> None:
    """Little's law, at any part of the most that is carried."""
    load = replace(part, rate_per_s=part.rate_per_s * most_rate_per_s(TIMES, part, ROOM))
    found = steady_state(TIMES, load, ROOM)
    assert not found.is_overloaded
    assert found.n_sequences == pytest.approx(load.rate_per_s * load.output_tokens * found.token_s, rel=1e-3)
    assert found.n_sequences <= ROOM.n_sequences
    assert found.token_s >= found.step_s


@given(LOADS)
def test_more_load_makes_nothing_faster(part: OfferedLoad) -> None:
    most = most_rate_per_s(TIMES, part, ROOM)
    found = [steady_state(TIMES, replace(part, rate_per_s=share * most), ROOM) for share in (0.1, 0.5, 0.9, 1.5)]
    assert [one.token_s for one in found] == sorted(one.token_s for one in found)
    assert [one.n_sequences for one in found] == sorted(one.n_sequences for one in found)
    assert [one.is_overloaded for one in found] == [False, False, False, True]


def test_the_most_that_is_carried_fills_the_time_with_steps_and_prompts() -> None:
    load = OfferedLoad(1, 1000, 100)
    assert most_rate_per_s(TIMES, load, ROOM) == pytest.approx(1 / (100 * 0.040 / 64 + 0.1))


def test_times_between_measured_numbers_are_interpolated_and_go_on_above() -> None:
    points = [(1, 1.0), (3, 2.0), (5, 6.0)]
    assert [interpolated(points, x) for x in (0, 1, 2, 3, 4, 5, 6)] == [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 8.0]
    assert interpolated([(1, 2.0), (4, 1.0)], 9) == 1.0  # noise does not go on
    assert interpolated([(4, 1.0)], 9) == 1.0
