"""What is learnt from the time of a step that has ended. Pure."""

from __future__ import annotations

from actors.scheduler.gang.plan_hold import PlanHold
from actors.scheduler.planning.look_ahead import LookAhead
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.planning.step_times import StepTimes
from actors.scheduler.planning.step_tracker import StepTracker
from messages.steps import Result


class StepMeasures:
    """The times of steps go to those who learn from them. A step that shared the device with an urgent one says nothing about
    its own work."""

    def __init__(self, tracker: StepTracker, hold: PlanHold, cost: StepCost, times: StepTimes) -> None:
        self._tracker, self._hold, self._cost, self._times = tracker, hold, cost, times
        self._busy_epoch = 0  # in which the last step has ended while a later one was in flight

    def step_done(self, result: Result, look_ahead: LookAhead) -> None:
        """A step in flight has ended. To be called before its result is applied."""
        number, compute_s, epoch = int(result.step), result.compute_s, self._tracker.epoch
        if not self._tracker.is_delayed(number):
            self._hold.step_done(compute_s)
            if self._busy_epoch == epoch:
                look_ahead.add_wait(result.wait_s)
        if not self._tracker.is_urgent(number):
            self._busy_epoch = epoch if self._tracker.ordinary[1] > 1 else 0
        if self._tracker.is_slowed(number):
            return
        look_ahead.add_step_time(compute_s)
        planned = self._tracker.plan_of(number)
        if planned is not None:
            self._cost.learn(*planned.work, compute_s)
            self._times.add(planned.shape, compute_s)
