"""Which plans have been applied, with all plans before them. Pure.

The result of an urgent plan may come before those of plans that were sent earlier. The page ledger counts a plan as applied
only when these are, because it may have noted for a later plan what an earlier one writes.
"""

from __future__ import annotations

from collections import deque


class AppliedPlans:
    """The plans of one epoch in the order in which they were sent, by their first step."""

    def __init__(self) -> None:
        self._sent: deque[int] = deque()
        self._early: set[int] = set()  # that have ended while one before them has not

    def sent(self, step: int) -> None:
        """A plan has been sent."""
        self._sent.append(step)

    def ended(self, step: int) -> int:
        """The last result of a plan has come. Returns how many plans more have ended now, with all before them."""
        n_applied = 0
        self._early.add(step)
        while self._sent and self._sent[0] in self._early:
            self._early.discard(self._sent.popleft())
            n_applied += 1
        return n_applied

    def clear(self) -> None:
        """The epoch has ended."""
        self._sent.clear()
        self._early.clear()
