"""A sum in which older amounts count less. Pure: the caller passes the time."""

from __future__ import annotations


class DecayedSum:
    """What was added counts half after `half_life_s`, a quarter after twice that time, and so on."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._sum, self._at_s = 0.0, 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Add an amount at `now_s`."""
        self._sum, self._at_s = self.value(now_s) + amount, max(now_s, self._at_s)

    def value(self, now_s: float) -> float:
        """The sum as of `now_s`; a time before the last addition counts as that."""
        if not self._sum:
            return 0.0
        return self._sum * 0.5 ** (max(now_s - self._at_s, 0.0) / self._half_life_s)
