"""Finished requests that clients can still ask for, and checkpoints of long running ones.

Finished requests are kept, with prompts and tokens, in the journal and in memory: for a bounded time, up to a bounded number
and size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import Recovered, decode_states, encode_states, states_of
from actors.gateway.requests.order import Order
from actors.gateway.requests.request import Request

_MAX_RETAINED, _MAX_RETAINED_BYTES = 8192, 256 << 20
_CHECKPOINT_TOKENS = 4096  # new tokens for each sequence after which a request gets a checkpoint


@dataclass(frozen=True)
class Retained:
    """One finished request: `states` as in the journal, `ended_s` Unix time."""

    number: int
    order: Order
    states: bytes
    ended_s: float

    @property
    def n_bytes(self) -> int:
        """Memory of the states and the prompts."""
        return len(self.states) + sum(map(len, self.order.prompts))

    def recovered(self) -> Recovered:
        """The same request as if read from the journal."""
        return Recovered(self.number, self.order, decode_states(self.states), ended_s=self.ended_s)


class RetainedRequests:
    """At most 8192 finished requests by id. The oldest are dropped first."""

    def __init__(self, journal: Journal, retention_s: float, most_bytes: int = _MAX_RETAINED_BYTES) -> None:
        """`most_bytes` bounds them all together; the newest request is always kept, however large."""
        self._journal, self._retention_s = journal, retention_s
        self._by_id: dict[str, Retained] = {}
        self._most_bytes, self._n_bytes = most_bytes, 0

    def keep(self, request: Request, ended_s: float) -> None:
        """Keep a request that is over if it is resumable, else delete it from the journal. `ended_s`: Unix time."""
        if not request.order.is_resumable:
            self._journal.delete(request.number)
            return
        states = encode_states(states_of(request))
        self._journal.finish(request.number, states, ended_s)
        self._remove(request.order.request)
        kept = self._by_id[request.order.request] = Retained(request.number, request.order, states, ended_s)
        self._n_bytes += kept.n_bytes
        while len(self._by_id) > 1 and (len(self._by_id) > _MAX_RETAINED or self._n_bytes > self._most_bytes):
            self._drop_oldest()

    def checkpoint(self, request: Request, coming: Callable[[Request], list[int]]) -> None:
        """Write a checkpoint of a running request if it has many tokens since the last one. `coming`: its turns that are not
        visible yet.
        """
        if request.n_generated - request.n_checkpointed > _CHECKPOINT_TOKENS * len(request.sequences):
            request.n_checkpointed = request.n_generated
            states = states_of(request, coming(request)) if request.order.is_resumable else []
            self._journal.checkpoint(request.number, encode_states(states))

    def find(self, request_id: str) -> Retained | None:
        """The finished request with this id, or None."""
        return self._by_id.get(request_id)

    def expire(self, now_s: float) -> None:
        """Delete requests past their retention and steps that no request needs. `now_s`: Unix time."""
        self._journal.prune(now_s - self._retention_s)
        while self._by_id and now_s - next(iter(self._by_id.values())).ended_s > self._retention_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._journal.delete(self._remove(next(iter(self._by_id))))

    def _remove(self, request_id: str) -> int:
        """Remove a request from memory; returns its number, 0 if it is not kept."""
        kept = self._by_id.pop(request_id, None)
        if kept is None:
            return 0
        self._n_bytes -= kept.n_bytes
        return kept.number

    def __len__(self) -> int:
        return len(self._by_id)
