"""Results that have come and may not be applied yet, because a load that brings pages which they have read may still fail.

They are applied in their order. No more can be held than steps are in flight, and none longer than a load may take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from actors.scheduler.planning.step_tracker import StepTracker
from actors.scheduler.planning.tiers.runs_ahead import RunsAhead
from messages.steps import Result


class HeldResults:
    """The results of one gang after the other. ahead: whose rows may be wrong. apply: is called with each result in time."""

    def __init__(self, tracker: StepTracker, ahead: RunsAhead, apply: Callable[[Result], None]) -> None:
        self._tracker, self._ahead, self._apply = tracker, ahead, apply
        self._results: deque[Result] = deque()

    def come(self, result: Result) -> None:
        """A result has come. That of an urgent step waits for no other one: it has read nothing that a load brings."""
        if self._tracker.is_current(result.epoch) and self._tracker.is_urgent(int(result.step)):
            self._apply(result)
            return
        self._results.append(result)
        self.go_on()

    def go_on(self) -> None:
        """Apply what may be applied; to be called when loads have ended. Results of earlier epochs are dropped."""
        while self._results:
            if not self._tracker.is_current(self._results[0].epoch):
                self._results.popleft()
            elif self._ahead and self._ahead.is_in(self._tracker.plan_of(int(self._results[0].step))):
                return
            else:
                self._apply(self._results.popleft())
