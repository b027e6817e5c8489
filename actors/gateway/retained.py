"""Finished requests that a client may still come back for: a few bytes each, for a bounded time, in a bounded number."""

from __future__ import annotations

from dataclasses import dataclass

from actors.gateway.journal_records import Recovered, decode_states
from actors.gateway.order import Order

_MAX_RETAINED = 8192


@dataclass(frozen=True)
class Retained:
    """One finished request: `states` as in the journal, `ended_s` Unix time."""

    number: int
    order: Order
    states: bytes
    ended_s: float

    def recovered(self) -> Recovered:
        """As if read from the journal."""
        return Recovered(self.number, self.order, decode_states(self.states), ended_s=self.ended_s)


class RetainedRequests:
    """By request id, oldest first."""

    def __init__(self, retention_s: float) -> None:
        self._retention_s = retention_s
        self._by_id: dict[str, Retained] = {}

    def add(self, kept: Retained) -> None:
        """Keep one."""
        self._by_id.pop(kept.order.request, None)
        self._by_id[kept.order.request] = kept

    def find(self, request_id: str) -> Retained | None:
        """One that is kept."""
        return self._by_id.get(request_id)

    def expire(self, now_s: float) -> list[int]:
        """Drop what is too old or too many; returns the numbers dropped."""
        dropped = []
        for request_id, kept in list(self._by_id.items()):
            if now_s - kept.ended_s <= self._retention_s and len(self._by_id) <= _MAX_RETAINED:
                break
            del self._by_id[request_id]
            dropped.append(kept.number)
        return dropped

    def __len__(self) -> int:
        return len(self._by_id)
