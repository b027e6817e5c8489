"""How many pages a ledger needs, by what it has needed lately. Pure.

The idea of the working set (Denning, The working set model for program behavior, 1968): what was used in the last window of
time will be used in the next one. Needed are the pages that sequences held at the same time, at the most, and the cached pages
that were reused. A cached page that nobody asked for in that time is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class SizingRule:
    """The thresholds. quiet_s: a page that was not needed for one to two times so long is given back. spare_share: pages that
    stay beside the needed ones, as a part of these."""

    quiet_s: float
    spare_share: float


class WorkingSet:
    """The needs of the present window and of the one before it. `now_s`: the monotonic clock."""

    def __init__(self, rule: SizingRule, now_s: Callable[[], float]) -> None:
        self._rule, self._now_s = rule, now_s
        self._end_s = now_s() + rule.quiet_s
        self._most_held = 0
        self._reused: set[int] = set()
        self._needed_before: int | None = None  # in the window before; None: there is none yet

    def held(self, n_pages: int) -> None:
        """So many pages are held now."""
        if n_pages > self._most_held:
            self._most_held = n_pages

    def reused(self, pages: list[int]) -> None:
        """Sequences have found these pages by content."""
        self._reused.update(pages)

    def size(self, n_held: int) -> int | None:
        """At the end of a window: the pages that are worth keeping, by this window and the one before. None until then.

        A large need counts for two windows, so a short pause gives nothing back. n_held: pages that are held now."""
        self.held(n_held)
        if self._now_s() < self._end_s:
            return None
        needed, before = self._most_held + len(self._reused), self._needed_before
        self._end_s = self._now_s() + self._rule.quiet_s
        self._most_held, self._needed_before = n_held, needed
        self._reused.clear()
        return math.ceil(max(needed, before) * (1 + self._rule.spare_share)) if before is not None else None
