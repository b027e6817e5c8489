"""The level of degradation of a replica, by how long the work that waits will take. Pure.

    wait >= threshold of the next level, for RISE_S          wait < half of the threshold of this level, for FALL_S
    level ----------------------------------------> + 1      level ------------------------------------------> - 1

The threshold of level 1 is a setting; that of each later level is twice the one before. A wait between the two limits keeps the
level, and it changes by one at a time, so that it does not swing with every batch of requests. A peak that does not last keeps
no level: it takes twice its length off the time for which the wait has been short. Pages and slots need no measure of their
own: a sequence that finds none waits, and its tokens count.
"""

from __future__ import annotations

from messages.generation.replica_load import DegradationLevel

RISE_S, FALL_S = 0.5, 3.0
_FALL_PART = 0.5  # of a level's threshold


class Degradation:
    """`first_s`: the threshold of level 1, in seconds; 0: the level is always 0."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self.level = DegradationLevel.NORMAL
        self._direction = 0  # in which the level would change, at the last look: 1, -1, or 0 if it stays
        self._last_s = self._long_s = self._short_s = 0.0  # the last look; since when the wait is long, and since when short

    def threshold_s(self, level: DegradationLevel) -> float:
        """The wait from which on a level may be entered. `level`: 1 or higher."""
        return self._first_s * 2.0 ** (level - 1)

    def update(self, wait_s: float, now_s: float) -> DegradationLevel:
        """What waits now will take `wait_s`. Returns the level. `now_s`: of the monotonic clock; one that goes back only makes
        the next change later."""
        if not self._first_s:
            return self.level
        direction = self._wanted(wait_s)
        if now_s < self._last_s:
            self._long_s = self._short_s = now_s
        if self._direction >= 0:
            self._short_s = min(self._short_s + 2 * max(now_s - self._last_s, 0.0), now_s)
        if self._direction <= 0:
            self._long_s = now_s
        self._direction, self._last_s = direction, now_s
        if direction and now_s - (self._long_s if direction > 0 else self._short_s) >= (RISE_S if direction > 0 else FALL_S):
            self.level = DegradationLevel(self.level + direction)
            self._long_s = self._short_s = now_s
        return self.level

    def _wanted(self, wait_s: float) -> int:
        if self.level < DegradationLevel.SHEDDING and wait_s >= self.threshold_s(DegradationLevel(self.level + 1)):
            return 1
        return -1 if self.level and wait_s < _FALL_PART * self.threshold_s(self.level) else 0
