"""Decides when a drain is over, and how it ended. Pure: the caller passes the states of gateways and the time.

A dead gateway has not finished: its journal may hold requests, and its next incarnation goes on with them. So a drain is over
when every gateway has sent Drained, when its deadline has passed, or when the tree gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from messages.lifecycle.tree import ChildState


class DrainEnd(Enum):
    """How a drain ended."""

    DRAINED = "drained"
    LATE = "the deadline passed"
    CUT = "cut short"


class DrainWatch:
    """One command to drain. All times are seconds of one monotonic clock that the caller reads."""

    def __init__(self, deadline_s: float, now_s: float) -> None:
        self._end_s = now_s + deadline_s
        self._is_cut = False

    def cut(self) -> None:
        """End the drain, because the tree gives up and no more requests will be finished."""
        self._is_cut = True

    def left_s(self, now_s: float) -> float:
        """Seconds until the deadline. A gateway that restarts does not move the deadline."""
        return max(self._end_s - now_s, 0.0)

    def result(self, states: Sequence[ChildState], now_s: float) -> DrainEnd | None:
        """How it ended, given the states of all gateways; None while it goes on."""
        if self._is_cut:
            return DrainEnd.CUT
        if all(state is ChildState.DRAINED for state in states):
            return DrainEnd.DRAINED
        return DrainEnd.LATE if now_s >= self._end_s else None
