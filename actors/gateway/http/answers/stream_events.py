"""The events of a streamed answer: a pure function of the request, of what has become visible of it, and in which order.

The same request restored from the journal gives the same events, whenever and however often it is asked:

    openings        what comes before the first token; without an id
    item 1, 2, ...  one event for each token with text, each ending, each ping, in the order of `Request.stream_items`
    last items      what comes after the last ending, or the error

The API decides how an event looks (`formats/format.py`).
The id of an event is its number: 1, 2, ..., and pings have none. A client that has read event `n` goes on after it. Only the
events of a resumable request have ids.

With several sequences the order of events depends on the process that has shown them. Tokens that were shown while the disk
refused writes are missing in the journal after a death, and the successor may show them in another order. So numbers jump
where a later process begins another run of the request (`Request.runs`): event number c of run R is R * 10**9 + c. An id of a
run, or of a part of a run, that the journal does not have is recognised and refused. A single sequence has only one order: a
client that has more of it than the journal waits until those tokens are computed again.

A ping is a comment line without an empty line after it: some client libraries take an empty line after an event with an id as
another event, without data.
"""

from __future__ import annotations

import numpy as np

from actors.gateway.http.formats.format import PART_BASE, StreamWriter
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.requests.stream_items import END_ITEM, PING_ITEM, RUN_ITEM

RUN_EVENTS = 1_000_000_000
_MOST_EVENTS, _MOST_WITH_LOGPROBS = 1024, 64  # in one turn of the event loop: 2 to 3 ms
_FEW_EVENTS = 16  # that are made while other streams wait for theirs
_RETRY = b"retry: 500\n"  # a browser's EventSource connects again after this time, ms; browsers' own is some seconds
_POWERS = {base: base ** np.arange(1, 15) for base in (10, 16)}


def failure_of(request: Request) -> Ended | None:
    """The visible failure of one of the request's sequences, or None."""
    for sequence in request.sequences:
        if sequence.is_end_visible and sequence.ended is not None and sequence.ended.is_failure:
            return sequence.ended
    return None


class StreamEvents:
    """The events of one request after item `start`, as they become visible. Nothing is written twice, nothing is left out."""

    def __init__(self, request: Request, writer: StreamWriter, start: int = 0) -> None:
        """`start`: the id of the last event that the client has, and perhaps parts of the next one (`StreamWriter.has_parts`);
        0: it has none. Raises: ValueError for one that is unknown.
        """
        self._request, self._writer = request, writer
        self._has_ids = request.spec.is_resumable and writer.has_ids
        self.content_type = writer.content_type
        self._n_taken = 0  # items that have been returned, or that the client has
        self._base = self._count = self._n_runs = 0  # of these items: the number of the newest event is `_base + _count`
        self.run = 0  # of the request, in which the newest event was shown that `take` has returned
        self._cursors = [0] * len(request.sequences)  # the next token of each sequence
        self._most = _MOST_WITH_LOGPROBS if request.spec.sampling.logprobs >= 0 else _MOST_EVENTS
        self._has_large_events = request.spec.terms.prompt_logprobs >= 0  # a first token comes with those of its whole prompt
        self.start = start
        # how many parts of the next event the client has, and the number of the event before it
        self._n_parts, self._after = divmod(start, PART_BASE) if writer.has_parts else (0, start)
        self._is_opened = self._has_retry = self._after > 0
        self.is_done = False
        self._n_last_read = 0  # of the events after the last item
        self._again: list[bytes] = []  # events that have been put back
        self.is_behind = self._after > 0  # the client has more than is visible now
        self._catch_up()
        if self.is_behind and not self._will_be_reached(self._after):
            raise ValueError(f"expected the id of an event that the journal has, got {start}")
        # nothing is left, and nothing will come
        self.is_empty = request.is_over and self._n_last_read == len(self._last())

    def take(self, stop: int | None = None) -> list[bytes]:
        """The events that became visible since the last call, each as its bytes. [] after the last one.

        `stop`: only those of items below it.
        """
        if self.is_behind:
            self._catch_up()
        events, self._again = self._again, []
        if not self._is_opened:
            events += self._openings()
        self._is_opened = True
        items = () if self.is_behind else self._request.stream_items[self._n_taken : stop]
        self._n_taken += len(items)
        for item in items:
            event = self._event(item)
            if event:
                events.append(event)
        if self._request.is_over and not self.is_done and stop is None:
            self.is_done, self.run = True, self._base // RUN_EVENTS
            last = enumerate(self._last(), self._base + self._count + 1)
            events += [self._finished(line, number) for number, line in list(last)[self._n_last_read :]]
        return events

    def put_back(self, events: list[bytes]) -> None:
        """Let the next call of `take` return these events first. Nothing may have been taken after them."""
        self._again = events

    def next_sizes(self, stop: int | None) -> np.ndarray:
        """The lengths of the events of the next items: int64 [n], 0 where there is no event. `stop`: only items below it.

        It ends before the first item that is no token, and is empty where only making the events tells.
        """
        request, nothing = self._request, np.zeros(0, np.int64)
        if len(request.sequences) > 1 or self._n_parts or self.is_behind:
            return nothing
        others = np.flatnonzero(np.array(request.stream_items[self._n_taken : stop]))  # a token of the only sequence is 0
        n = int(others[0]) if others.size else len(request.stream_items[self._n_taken : stop])
        sizes = self._writer.token_sizes(request.sequences[0], self._cursors[0], self._cursors[0] + n) if n else None
        if sizes is None:
            return nothing
        lines, numbers = sizes, self._base + self._count + 1 + np.arange(n)
        lengths = lines + (len(b"id: \n\n") + n_digits(numbers, 10) if self._has_ids else 1)
        if self._has_ids and not self._has_retry:
            lengths[: int(np.argmax(lines > 0)) + 1] += len(_RETRY)
        return np.where(lines > 0, lengths, 0)

    def skip(self, n_items: int, *, has_events: bool) -> None:
        """Pass the next items, which are tokens of the only sequence. `has_events`: at least one of them has an event."""
        self._n_taken += n_items
        self._count += n_items
        self._cursors[0] += n_items
        self._has_retry = self._has_retry or has_events

    def take_some(self) -> list[bytes]:
        """As `take`, but no more events than one turn of the event loop should make; `has_more` says if there are."""
        most = 1 if self._has_large_events and 0 in self._cursors else self._most
        stop = self._n_taken + most
        return self.take(stop if stop < len(self._request.stream_items) else None)

    def take_few(self) -> list[bytes] | None:
        """As `take`, in the most frequent case: a few tokens after others. None, and nothing is taken, in every other case."""
        request, items, first = self._request, self._request.stream_items, self._n_taken
        n = len(items) - first
        if n > _FEW_EVENTS or self._has_large_events or request.runs or self._again or self.is_behind:
            return None
        if not self._is_opened or request.is_over:
            return None
        self._n_taken = first + n
        if self._n_parts or not (self._has_retry and self._has_ids) or len(request.sequences) > 1 or any(items[first:]):
            return [event for item in items[first:] if (event := self._event(item))]
        return self._next_of_one(request.sequences[0], n)

    def _next_of_one(self, sequence: GrowingSequence, n: int) -> list[bytes]:
        """The events of the next `n` tokens of the only sequence, with ids: as `_event`, in a part of the time."""
        token, event = self._cursors[0], self._base + self._count + 1
        self._cursors[0] = token + n
        self._count += n
        if n == 1:
            line = self._writer.token(sequence, token)
            return [b"%bid: %d\n\n" % (line, event)] if line else []
        lines = self._writer.tokens(sequence, token, token + n)
        return [b"%bid: %d\n\n" % (line, number) for number, line in enumerate(lines, event) if line]

    @property
    def has_more(self) -> bool:
        """True if more is visible than has been returned."""
        return not self.is_behind and self._n_taken < len(self._request.stream_items)

    def _will_be_reached(self, start: int) -> bool:
        """True if an earlier process may have shown this event, and this one will show the same."""
        request = self._request
        is_going_on = request.n_restored_items is not None and not request.is_over
        return is_going_on and len(request.sequences) == 1 and start <= request.spec.terms.max_tokens + 1

    def _catch_up(self) -> None:
        """Pass what the client has."""
        while self.is_behind and self._base + self._count != self._after and self._n_taken < len(self._request.stream_items):
            item = self._request.stream_items[self._n_taken]
            self._n_taken += 1
            if item == RUN_ITEM:
                self._begin_run()
            elif item != PING_ITEM:
                self._count += 1
                if item < RUN_ITEM:
                    self._cursors[item] += 1
        n_more = self._after - self._base - self._count
        if self.is_behind and self._request.is_over and 0 < n_more <= len(self._last()):
            self._n_last_read, n_more = n_more, 0
        self.is_behind = n_more != 0 and self.is_behind

    def _begin_run(self) -> None:
        self._base = self._request.runs[self._n_runs] * RUN_EVENTS
        self._n_runs += 1

    def _event(self, item: int) -> bytes:
        if item < RUN_ITEM:
            number = self._cursors[item]
            self._cursors[item] = number + 1
            line = self._writer.token(self._request.sequences[item], number)
        elif item >= END_ITEM:
            line = self._writer.ending(self._request.sequences[item - END_ITEM])
        elif item == PING_ITEM:
            self.run = self._base // RUN_EVENTS
            return self._writer.ping
        else:
            self._begin_run()
            return b""
        self._count += 1
        self.run = self._base // RUN_EVENTS
        if self._n_parts:
            line, self._n_parts = b"\n\n".join(line.split(b"\n\n")[self._n_parts :]), 0
        return self._finished(line, self._base + self._count) if line else b""

    def _openings(self) -> list[bytes]:
        """The opening lines of the stream that the client does not have."""
        lines, n_parts = self._writer.openings(), self._n_parts
        self._n_parts = max(n_parts - len(lines), 0)
        return [line + b"\n" for line in lines[n_parts:]]

    def _finished(self, line: bytes, number: int) -> bytes:
        # the id comes after the data, so that a client that has read it has read the data
        if not self._has_ids:
            return line + b"\n"
        if self._has_retry:
            return b"%bid: %d\n\n" % (line, number)
        self._has_retry = True
        return b"%bid: %d\n%b\n" % (line, number, _RETRY)

    def _last(self) -> list[bytes]:
        """The events after the last item of a request that is over."""
        return self._writer.last(failure_of(self._request))


def n_digits(numbers: np.ndarray, base: int) -> np.ndarray:
    """With how many digits each of these numbers is written. `numbers`: int64 [n], from 0 on."""
    return np.searchsorted(_POWERS[base], numbers, side="right") + 1


def run_in(event: bytes) -> int:
    """The run of a request in the id of one of its events; 0 for its first run, and for an event without an id."""
    digits = event[event.rfind(b"\nid: ") + 5 :].partition(b"\n")[0]
    return int(digits) // RUN_EVENTS if len(digits) > 9 and digits.isdigit() else 0
