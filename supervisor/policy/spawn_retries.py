"""Births that the machine has refused (a full disk, no process or descriptor left), and when each is tried again. Pure.

A refusal is no death: it costs no restart, and there is no last try. The pause doubles up to two seconds, so a child is back
soon after the machine is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


@dataclass
class _Late:
    names: tuple[str, ...]  # to be born together
    refusals: int  # in a row
    again_s: float


class LateBirths:
    """Who waits to be born. Times are seconds of one clock, given by the caller."""

    def __init__(self) -> None:
        self._late: list[_Late] = []

    def refused(self, names: tuple[str, ...], now_s: float) -> float:
        """These could not be born; returns the pause in seconds before the next try."""
        before = [late for late in self._late if not set(names).isdisjoint(late.names)]
        refusals = 1 + max((late.refusals for late in before), default=0)
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(refusals - 1, 30), _LONGEST_PAUSE_S)
        self._late = [late for late in self._late if late not in before]
        self._late.append(_Late(names, refusals, now_s + pause_s))
        return pause_s

    def born(self, name: str) -> None:
        """It lives, whoever gave the order."""
        self._late = [late for late in self._late if name not in late.names]

    def due(self, now_s: float) -> list[tuple[str, ...]]:
        """Whom to try again now; each is handed out once, until it is refused again."""
        due = [late for late in self._late if late.again_s <= now_s]
        for late in due:
            late.again_s = math.inf
        return [late.names for late in due]
