"""A token bucket: it refills evenly, and holds at most what comes in one minute. Pure.

What was used beyond its content is owed, and the next refills pay it first. So neither number is ever negative, and over a long
time no more is used than has come.
"""

from __future__ import annotations

import math

_MINUTE_S = 60.0
_DUST = 1e-6  # what sums of fractions may lack


class Bucket:
    """What may be used now. `per_min`: what comes in a minute, and what it holds at most; 0: it has no limit.

    A clock that goes back gives nothing, and takes nothing away.
    """

    __slots__ = ("_at_s", "left", "owed", "per_min")

    def __init__(self, per_min: float, now_s: float, left: float = math.inf, owed: float = 0.0) -> None:
        """`left`: its content now; a new one is full."""
        self.per_min, self._at_s = per_min, now_s
        self.left, self.owed = min(left, per_min), owed

    def refill(self, now_s: float, per_min: float) -> None:
        """Add what has come since the last call. `per_min`: the limit from now on; where there was none, the bucket is full."""
        elapsed_s, self._at_s = max(now_s - self._at_s, 0.0), now_s
        self.give(self.per_min * elapsed_s / _MINUTE_S)
        if per_min != self.per_min:
            self.left = per_min if not self.per_min else min(self.left, per_min)
            self.owed, self.per_min = (self.owed if per_min else 0.0), per_min

    def has(self, amount: float) -> bool:
        """True if so much may be taken now."""
        return not self.per_min or amount + self.owed <= self.left + _DUST

    def take(self, amount: float) -> None:
        """Use so much, whether it is there or not."""
        if self.per_min:
            taken = min(amount, self.left)
            self.left -= taken
            self.owed += amount - taken

    def give(self, amount: float) -> None:
        """Give back what was taken and not used, or what has come."""
        paid = min(amount, self.owed)
        self.owed -= paid
        self.left = min(self.left + amount - paid, self.per_min)

    def wait_s(self, amount: float) -> float:
        """When so much may be taken, if nothing else is until then."""
        return max(amount + self.owed - self.left, 0.0) * _MINUTE_S / self.per_min if self.per_min else 0.0
