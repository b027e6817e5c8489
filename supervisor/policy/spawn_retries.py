"""Children that the machine could not spawn (a full disk, no process or descriptor left), and when to try again. Pure.

A refused spawn is not a death: it counts against no budget, and the number of tries is not limited. The pause doubles up to two
seconds, so a child starts soon after the machine can spawn it again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


@dataclass
class _Refused:
    names: tuple[str, ...]  # to be started together
    refusals: int  # in a row
    retry_s: float  # time of the next try


class SpawnRetries:
    """Children whose spawn was refused. Times are seconds of one clock that the caller reads."""

    def __init__(self) -> None:
        self._waiting: list[_Refused] = []

    def refused(self, names: tuple[str, ...], now_s: float) -> float:
        """These children could not be started. Returns the pause in seconds before the next try."""
        before = [refused for refused in self._waiting if not set(names).isdisjoint(refused.names)]
        refusals = 1 + max((refused.refusals for refused in before), default=0)
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(refusals - 1, 30), _LONGEST_PAUSE_S)
        self._waiting = [refused for refused in self._waiting if refused not in before]
        self._waiting.append(_Refused(names, refusals, now_s + pause_s))
        return pause_s

    def spawned(self, name: str) -> None:
        """Forget the retries of a child that has a process now."""
        self._waiting = [refused for refused in self._waiting if name not in refused.names]

    def due(self, now_s: float) -> list[tuple[str, ...]]:
        """The children to try again now. Each is returned once, until it is refused again."""
        due = [refused for refused in self._waiting if refused.retry_s <= now_s]
        for refused in due:
            refused.retry_s = math.inf
        return [refused.names for refused in due]
