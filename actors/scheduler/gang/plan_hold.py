"""Holds the next plan back until the steps in flight have nearly ended, so that an urgent request can still get into it. Pure.

A plan that is sent early costs nothing while all requests are alike. Where urgent ones come, each plan that is ahead of them
delays them by a whole step. So the plan is made just in time: one round trip before the device needs it. A device that has
waited for such a plan shows that by the time between its results, and the next plans are sent so much earlier.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.planning.step_tracker import StepTracker
from actors.scheduler.sequences.policy import SchedulingPolicy

_ROUND_TRIP_S = 0.0025  # a result reaches the scheduler, which plans, and the plan the gang; a late host needs longer
_UNSURE = 16  # one part in so many of the expected time may be wrong
_GAP_S = 0.001  # between two results beyond the time of the step: the host was late by so much
_LEAST_S = 1e-4  # a plan is not held back for less
_MOST_S = 1.0  # that a plan is held back; nothing is known for certain about longer steps
_KEPT = 0.99  # of a longer margin, with each step


class PlanHold:
    """Whether the next plan of one scheduler waits. `now_s`: its clock, in seconds. `cost`: of the gang's steps."""

    def __init__(self, policy: SchedulingPolicy, now_s: Callable[[], float], cost: StepCost, tracker: StepTracker) -> None:
        self._policy, self._now_s, self._cost, self._tracker = policy, now_s, cost, tracker
        self._oldest: tuple[int, int] | None = None  # the step that runs: its epoch, and the steps that were done before it
        self._began_s = 0.0  # when it began, at the latest
        self._was_held = False  # the plan in flight that was sent last
        self._margin_s = _ROUND_TRIP_S
        self._wait_s = 0.0  # the plan that is held back has to be made after this time; 0: none is

    def is_on(self) -> bool:
        """True if the next plan has to wait."""
        self._wait_s = 0.0
        if not self._tracker.ordinary_plans:
            self._oldest = None
            return False
        if not self._policy.awaits_urgent():
            return False
        left_s = self._left_s()
        self._wait_s = left_s if _LEAST_S < left_s <= _MOST_S else 0.0
        self._was_held = self._was_held or self._wait_s > 0.0
        return self._wait_s > 0.0

    def take_wait_s(self) -> float:
        """The time after which the plan that is held back has to be made, in seconds; 0: none is. It is told once."""
        wait_s, self._wait_s = self._wait_s, 0.0
        return wait_s

    def step_done(self, compute_s: float) -> None:
        """A step has ended; it took so long on the device."""
        if self._was_held and self._oldest is not None:
            late_s = self._now_s() - self._began_s - compute_s
            self._margin_s = max(self._margin_s * _KEPT, _ROUND_TRIP_S) + (late_s if late_s > _GAP_S else 0.0)
            self._margin_s = min(self._margin_s, _MOST_S)
        self._was_held = False

    def _left_s(self) -> float:
        oldest = (self._tracker.epoch, self._tracker.n_ordinary_done)
        if oldest != self._oldest:
            self._oldest, self._began_s = oldest, self._now_s()
        steps_s = sum(self._cost.step_s(*planned.work) for planned in self._tracker.planned())
        return steps_s * (1.0 - 1.0 / _UNSURE) - (self._now_s() - self._began_s) - self._margin_s
