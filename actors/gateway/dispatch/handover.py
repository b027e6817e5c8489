"""Which ended answers have not reached their clients, and for how long a drain waits for them. Pure: a clock goes in.

A client that goes on taking is waited for. One that has taken nothing for `patience_s`, or is not there for so long, is given
up: what it can come back for stays in the journal, for the next life of this server.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Debt:
    whole: int
    left: int
    since_s: float  # when the client last took something of it


class Handover:
    """What is left to take of each answer, counted in whatever its client confirms: tokens, bytes."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._debts: dict[Hashable, _Debt] = {}

    def owe(self, key: Hashable, whole: int, since_s: float) -> None:
        """A client is to take so much."""
        self._debts[key] = _Debt(whole, whole, since_s)

    def received(self, key: Hashable, up_to: int, now_s: float) -> None:
        """The client holds everything below `up_to`."""
        debt = self._debts.get(key)
        if debt is not None:
            self._left(key, debt, debt.whole - up_to, now_s)

    def paid(self, key: Hashable) -> None:
        """The client has it all."""
        self._debts.pop(key, None)

    def look(self, left_by_key: Mapping[Any, int], now_s: float) -> None:
        """All that is owed, as it stands now."""
        for gone in self._debts.keys() - left_by_key.keys():
            del self._debts[gone]
        for key, left in left_by_key.items():
            debt = self._debts.get(key)
            if debt is not None:
                self._left(key, debt, left, now_s)
            elif left > 0:
                self.owe(key, left, now_s)

    def n_waited_for(self, now_s: float) -> int:
        """Clients that still take, or may still come."""
        return sum(now_s - debt.since_s <= self._patience_s for debt in self._debts.values())

    def forget_given_up(self, now_s: float) -> None:
        """Drop what nobody waits for any more."""
        self._debts = {key: debt for key, debt in self._debts.items() if now_s - debt.since_s <= self._patience_s}

    def _left(self, key: Hashable, debt: _Debt, left: int, now_s: float) -> None:
        if left <= 0:
            del self._debts[key]
        elif left != debt.left:
            debt.left, debt.since_s = left, now_s
