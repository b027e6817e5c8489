"""One step's news on its way from mail to journal to clients: which sequences got which tokens, and which ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from actors.gateway.journal.records import encode_step, row_of
from actors.gateway.requests.request import GrowingSequence, Logprobs
from messages import generation


class StepRows:
    """Collects (sequence, first, stop) rows and endings of one message."""

    __slots__ = ("endings", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[GrowingSequence, int, int]] = []
        self.endings: list[GrowingSequence] = []

    @property
    def n_tokens(self) -> int:
        """Tokens in all rows."""
        return sum(stop - first for _, first, stop in self.rows)

    def add(self, sequence: GrowingSequence, first: int) -> None:
        """The sequence has grown from `first` to its present length."""
        self.rows.append((sequence, first, len(sequence.ids)))

    def ended(self, sequence: GrowingSequence) -> None:
        """The sequence has its ending."""
        self.endings.append(sequence)

    def record(self) -> bytes:
        """What the journal keeps of it: the news of clients that can come back for them; b"" where there are none."""
        rows = [row_of(*row) for row in self.rows if row[0].request.order.is_resumable]
        endings = [(s.key, s.ended) for s in self.endings if s.ended is not None and s.request.order.is_resumable]
        return encode_step(rows, endings) if rows or endings else b""

    @property
    def are_admitted(self) -> bool:
        """Is every request of it recorded?"""
        return all(row[0].request.is_recorded for row in self.rows) and all(s.request.is_recorded for s in self.endings)

    @staticmethod
    def read(message: generation.Tokens) -> Iterator[tuple[int, int, list[int], int, Logprobs | None]]:
        """Rows of a message: attempt, number of the first token, ids, cached prompt tokens, log-probabilities if any."""
        ids = message.ids.tolist()
        has_logprobs = len(message.logprobs) > 0
        top_ids = message.top_ids.reshape(len(ids), message.top_width)
        top = message.top_logprobs.reshape(len(ids), message.top_width)
        start = 0
        columns = (message.attempts, message.firsts, message.counts, message.cached)
        for attempt, first, count, n_cached in zip(*(column.tolist() for column in columns), strict=True):
            stop = start + count
            part = Logprobs(message.logprobs[start:stop], top_ids[start:stop], top[start:stop]) if has_logprobs else None
            yield attempt, first, ids[start:stop], n_cached, part
            start = stop
