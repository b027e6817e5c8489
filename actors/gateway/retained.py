"""What the journal holds besides steps: checkpoints of long requests, and finished ones that a client may still come back for.

A finished request is a few bytes, kept for a bounded time, in a bounded number.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.gateway.journal import Journal
from actors.gateway.journal_records import Recovered, decode_states, encode_states, state_of
from actors.gateway.order import Order
from actors.gateway.request import Request

_MAX_RETAINED = 8192
_CHECKPOINT_TOKENS = 4096  # a sequence this long moves its tokens out of the steps table


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

    def __init__(self, journal: Journal, retention_s: float) -> None:
        self._journal, self._retention_s = journal, retention_s
        self._by_id: dict[str, Retained] = {}

    def file(self, request: Request, ended_s: float) -> None:
        """A request is over: keep it if its client can come back for it, else forget it."""
        if not request.order.is_resumable:
            self._journal.forget(request.number)
            return
        states = encode_states([state_of(sequence) for sequence in request.sequences])
        self._journal.finish(request.number, states, ended_s)
        self._by_id.pop(request.order.request, None)
        self._by_id[request.order.request] = Retained(request.number, request.order, states, ended_s)

    def checkpoint(self, request: Request) -> None:
        """Move a living request's tokens into its own row when it has become long."""
        if request.n_generated - request.n_checkpointed > _CHECKPOINT_TOKENS * len(request.sequences):
            request.n_checkpointed = request.n_generated
            self._journal.checkpoint(request.number, encode_states([state_of(sequence) for sequence in request.sequences]))

    def find(self, request_id: str) -> Retained | None:
        """One that is kept."""
        return self._by_id.get(request_id)

    def expire(self, now_s: float) -> None:
        """Drop what is too old or too many, and steps that nobody needs."""
        self._journal.prune(now_s - self._retention_s)
        for request_id, kept in list(self._by_id.items()):
            if now_s - kept.ended_s <= self._retention_s and len(self._by_id) <= _MAX_RETAINED:
                break
            del self._by_id[request_id]
            self._journal.forget(kept.number)

    def __len__(self) -> int:
        return len(self._by_id)
