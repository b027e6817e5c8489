"""The requests of a gateway that have ended: their answers are retained, and some still wait for their clients."""

from __future__ import annotations

from collections.abc import Callable

from actors.gateway.journal.records import FinishedRecord
from actors.gateway.journal.retained import RetainedRequests
from actors.gateway.lifecycle.undelivered import UndeliveredAnswers
from actors.gateway.requests.best_of import n_readable
from actors.gateway.requests.request import Request


class FinishedRequests:
    """`retained`: the answers that clients can ask for again. `undelivered`: those that a drain waits for, with their sizes in
    tokens; only resumable requests are among them.
    """

    def __init__(self, retained: RetainedRequests, patience_s: float) -> None:
        """`patience_s`: how long a drain waits for a client that reads nothing."""
        self.retained, self.undelivered = retained, UndeliveredAnswers(patience_s)
        self.on_keep: Callable[[Request], None] = lambda request: None  # called before the journal is told of an end

    def keep(self, request: Request, now_s: float) -> None:
        """Record the final state of a request that is over, and retain it."""
        self.on_keep(request)
        self.retained.keep(request, now_s)
        self.expect_client(request, now_s)

    def keep_record(self, answer: FinishedRecord, now_s: float) -> None:
        """Retain a finished request of an earlier incarnation, encoded as it is."""
        record, ended_s = answer.record, now_s - answer.ended_age_s
        read_s = None if answer.read_age_s is None else now_s - answer.read_age_s
        self.retained.add(answer.number, record, ended_s, read_s)
        if record.finish is not None and not record.finish.is_cancelled and read_s is None:
            self.undelivered.add(record.request, record.finish.n_tokens + 1, ended_s)

    def expect_client(self, request: Request, since_s: float) -> None:
        """Note that an ended request waits for its client, if one can ask for it again, is expected, and did not cancel it."""
        is_cancelled = any(s.ended is not None and s.ended.reason == "cancelled" for s in request.sequences)
        if request.spec.is_resumable and not (is_cancelled or request.spec.is_background):
            self.undelivered.add(request.spec.request, sum(n_readable(request)) + 1, since_s)

    def delivered(self, request: Request, now_s: float) -> None:
        """The client has the whole answer."""
        self.undelivered.remove(request.spec.request)
        self.retained.read(request.spec.request, now_s)

    def expire(self, now_s: float, *, takes_writes: bool) -> None:
        """Give up clients that have not come. If the disk `takes_writes`, delete the answers that are too old."""
        self.undelivered.drop_expired(now_s)
        if takes_writes:
            self.retained.expire(now_s)
