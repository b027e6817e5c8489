"""A budget for retries and moves, so that they stay a small part of the work. Pure: the caller passes the time."""

from __future__ import annotations

_SHARE = 0.25  # of the sequences that are submitted may be submitted again for nothing but a better place
_A_SECOND, _MOST = 10.0, 100.0


class RetryBudget:
    """What is left grows with each submission and with time, up to a limit."""

    def __init__(self) -> None:
        self._left, self._at_s = _MOST, 0.0

    def submitted(self) -> None:
        """A new sequence is submitted."""
        self._left = min(self._left + _SHARE, _MOST)

    def left(self, now_s: float) -> int:
        """How many retries there may be now."""
        self._left = min(self._left + _A_SECOND * max(now_s - self._at_s, 0.0), _MOST)
        self._at_s = max(now_s, self._at_s)
        return int(self._left)

    def take(self, now_s: float) -> bool:
        """Take one retry. False if none is left."""
        if not self.left(now_s):
            return False
        self._left -= 1.0
        return True
