"""New tokens and endings of one message, on their way from the scheduler to the journal and then to the clients. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from actors.gateway.journal.records import encode_step, ping_row, row_of
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.stream_items import END_ITEM, KEY_BITS, PING_ITEM
from messages.generation.logprobs import TokenLogprobs
from messages.generation.sequences import Tokens


class StepRows:
    """`rows`: (sequence, first, stop) for each sequence with new tokens first .. stop - 1. `endings`: ended sequences.
    `pings`: requests whose streams get a ping.
    """

    __slots__ = ("endings", "pings", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[GrowingSequence, int, int]] = []
        self.endings: list[GrowingSequence] = []
        self.pings: list[Request] = []

    @property
    def n_tokens(self) -> int:
        """Number of tokens in all rows."""
        return sum([stop - first for _, first, stop in self.rows])

    def add(self, sequence: GrowingSequence, first: int) -> None:
        """Add a row: the sequence has new tokens from `first` to its present length."""
        self.rows.append((sequence, first, len(sequence.ids)))

    def ended(self, sequence: GrowingSequence) -> None:
        """Add a sequence that has ended."""
        self.endings.append(sequence)

    def record(self) -> bytes:
        """The journal's record: rows, pings and endings of resumable requests; b"" if there are none."""
        rows = [row_of(*row) for row in self.rows if row[0].is_resumable]
        rows += [ping_row(request) for request in self.pings if request.spec.is_resumable]
        endings = [(s.key, s.ended) for s in self.endings if s.ended is not None and s.is_resumable]
        return encode_step(rows, endings) if rows or endings else b""

    def items_of(self, request: Request) -> list[int]:
        """What these rows will add to the items of one request, in order. Another one of them may be gone: it was withdrawn."""
        number = request.number
        items = [s.index for s, first, stop in self.rows if s.key >> KEY_BITS == number for _ in range(first, stop)]
        items += [PING_ITEM for other in self.pings if other is request]
        return items + [END_ITEM | s.index for s in self.endings if s.key >> KEY_BITS == number]

    @property
    def are_admitted(self) -> bool:
        """True if the journal has recorded the specification of every request in these rows and endings."""
        return all(row[0].request.is_recorded for row in self.rows) and all(s.request.is_recorded for s in self.endings)

    @property
    def are_at_once(self) -> bool:
        """True if they are the whole of requests that are answered at once: nothing of these is on its way into the journal."""
        return bool(self.endings) and not self.pings and all(s.request.is_at_once for s in self.endings)

    @staticmethod
    def read(message: Tokens) -> Iterator[tuple[int, int, list[int], int, TokenLogprobs | None]]:
        """Yields each row: attempt, number of its first token, ids, cached prompt tokens, log-probabilities or None."""
        ids = message.ids.tolist()
        start = 0
        columns = (message.attempts, message.firsts, message.counts, message.cached)
        for attempt, first, count, n_cached in zip(*(column.tolist() for column in columns), strict=True):
            stop = start + count
            part = message.logprobs.part(start, stop) if message.logprobs is not None else None
            yield attempt, first, ids[start:stop], n_cached, part
            start = stop
