"""When a drain is over, and how it ended. Pure: states of gateways and a clock go in.

A gateway that is dead has not finished: its journal may hold requests, and its next life goes on with them. So a drain is over
when every gateway *says* that nothing is left, when its deadline has passed, or when the tree gives up; nothing else counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from messages.lifecycle import ChildState


class DrainEnd(Enum):
    """How a drain ended."""

    DRAINED = "drained"
    LATE = "the deadline passed"
    CUT = "cut short"


class DrainWatch:
    """One order to drain. All times are seconds of one monotonic clock that the caller reads."""

    def __init__(self, deadline_s: float, now_s: float) -> None:
        self._end_s = now_s + deadline_s
        self._is_cut = False

    def cut(self) -> None:
        """The tree gives up: nothing will be finished any more."""
        self._is_cut = True

    def left_s(self, now_s: float) -> float:
        """Until the deadline; for gateways that come back meanwhile too."""
        return max(self._end_s - now_s, 0.0)

    def verdict(self, states: Sequence[ChildState], now_s: float) -> DrainEnd | None:
        """How it ended, given the states of all gateways; None while it goes on."""
        if self._is_cut:
            return DrainEnd.CUT
        if all(state is ChildState.DRAINED for state in states):
            return DrainEnd.DRAINED
        return DrainEnd.LATE if now_s >= self._end_s else None
