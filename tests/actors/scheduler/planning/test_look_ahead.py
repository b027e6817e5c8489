"""Leases and plans ahead, by how long steps take."""

from __future__ import annotations

import pytest

from actors.scheduler.planning.look_ahead import LookAhead


def look_ahead_of(step_s: float, lease_s: float, plans: int = 2) -> LookAhead:
    look_ahead = LookAhead(plans, lease_s)
    for _ in range(200):
        look_ahead.add_step_time(step_s)
    return look_ahead


@pytest.mark.parametrize(
    ("step_s", "lease_s", "steps"), [(0.0, 0.005, 8), (0.0004, 0.005, 8), (0.002, 0.005, 2), (0.004, 0.005, 1), (0.5, 0.03, 1)]
)
def test_a_lease_lasts_no_longer_than_it_is_worth(step_s: float, lease_s: float, steps: int) -> None:
    assert look_ahead_of(step_s, lease_s).lease_steps(8) == steps


@pytest.mark.parametrize(("step_s", "steps"), [(0.0001, 8), (0.001, 4), (0.0039, 1), (0.012, 1)])
def test_drafts_are_not_outrun_by_leases(step_s: float, steps: int) -> None:
    assert look_ahead_of(step_s, 0.03).lease_steps(8, is_drafting=True) == steps


def test_nothing_is_granted_ahead_before_a_step_is_known() -> None:
    assert LookAhead(2, 0.03).lease_steps(8) == 1


@pytest.mark.parametrize(
    ("step_s", "on_the_way", "is_enough"),
    [
        (0.0, (1, 8), False),  # as far as is known it is over at once
        (0.0004, (1, 8), False),
        (0.001, (1, 3), False),
        (0.001, (1, 4), True),
        (0.1, (1, 1), False),  # the device must never wait for a plan
        (0.1, (1, 2), True),
        (0.0, (2, 2), True),
    ],
)
def test_the_next_plan_leaves_when_what_is_on_its_way_is_short(
    step_s: float, on_the_way: tuple[int, int], is_enough: bool
) -> None:
    assert look_ahead_of(step_s, 0.005).is_enough(*on_the_way) is is_enough


@pytest.mark.parametrize("compute_s", [float("nan"), float("inf"), -1.0])
def test_a_wrong_clock_changes_nothing(compute_s: float) -> None:
    look_ahead = look_ahead_of(0.001, 0.005)
    look_ahead.add_step_time(compute_s)
    assert look_ahead.lease_steps(8) == 5


def test_a_prompt_between_decode_steps_is_forgotten_at_once() -> None:
    look_ahead = look_ahead_of(0.001, 0.005)
    look_ahead.add_step_time(0.4)
    assert look_ahead.lease_steps(8) == 1
    look_ahead.add_step_time(0.001)
    assert look_ahead.lease_steps(8) == 5


def waited(step_s: float, wait_s: float, plans: int = 2, times: int = 100) -> LookAhead:
    look_ahead = look_ahead_of(step_s, 0.005, plans)
    for _ in range(times):
        look_ahead.add_wait(wait_s)
    return look_ahead


def test_a_device_that_waits_gets_more_plans_ahead() -> None:
    look_ahead = waited(0.005, 0.002)
    assert not look_ahead.is_enough(2, 2)
    assert not look_ahead.is_enough(3, 3)
    assert look_ahead.is_enough(4, 4)


@pytest.mark.parametrize("wait_s", [-0.001, -0.1, float("nan")])
def test_a_plan_that_was_there_in_time_changes_nothing(wait_s: float) -> None:
    assert waited(0.005, wait_s).is_enough(2, 2)


def test_short_waits_are_worth_no_further_plan() -> None:
    assert waited(0.005, 5e-5).is_enough(2, 2)
    assert not waited(0.005, 6e-4).is_enough(2, 2)


def test_one_late_plan_changes_nothing() -> None:
    look_ahead = waited(0.005, -0.002)
    look_ahead.add_wait(0.005)  # 20 ms at most count, one part in 16 of them
    assert look_ahead.is_enough(2, 2)


def test_plans_ahead_are_given_up_when_they_come_in_time_again() -> None:
    look_ahead = waited(0.005, 0.002)
    for _ in range(2_000):
        look_ahead.add_wait(-0.004)
    assert look_ahead.is_enough(2, 2)


def test_drafts_and_a_single_plan_in_flight_stay_as_they_are() -> None:
    assert waited(0.005, 0.002).is_enough(2, 2, is_drafting=True)
    assert waited(0.005, 0.002, plans=1).is_enough(1, 1)


@pytest.mark.parametrize(
    ("has_prompts", "has_slot", "is_enough"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_sequences_that_come_and_find_room_are_not_planned_one_by_one(
    has_prompts: bool, has_slot: bool, is_enough: bool
) -> None:
    assert waited(0.005, 0.002).is_enough(2, 2, has_prompts, has_slot) is is_enough
