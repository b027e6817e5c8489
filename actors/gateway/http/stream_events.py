"""The bytes of a streamed answer as a pure function of its request: of the order, and of what has become visible, in its order.

The same request restored from the journal gives the same bytes, whenever and however often it is asked:

    head            status line and headers
    openings        the assistant's role, or the echoed prompt; without an id
    turn 1, 2, ...  one event for each token with text, each ending, each ping, in the order of `Request.turns`
    last turns      the usage if it was asked for, or the error; then [DONE]

The id of an event is the number of its turn. A client that has read event `n` goes on with turn n + 1. Only the events of a
resumable request have ids.

A ping is a comment line without an empty line after it: some client libraries take an empty line after an event with an id as
another event, without data.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate

from actors.gateway.http.errors import error_response, refusal_of
from actors.gateway.http.openai_chunks import DONE, ChunkWriter
from actors.gateway.requests.order import Ended
from actors.gateway.requests.request import END_TURN, PING_TURN, Request

PING = b": waiting\n"
N_DATE_BYTES = len("date: Sun, 06 Nov 1994 08:49:37 GMT\r\n")
_RETRY = b"retry: 500\n"  # a browser's EventSource connects again after this time, ms; browsers' own is some seconds


def failure_of(request: Request) -> Ended | None:
    """The visible failure of one of the request's sequences, or None."""
    for sequence in request.sequences:
        if sequence.is_end_visible and sequence.ended is not None and sequence.ended.is_failure:
            return sequence.ended
    return None


def stream_headers(request: Request) -> list[tuple[bytes, bytes]]:
    """The response headers of a stream. Its date is that of the request, so that a later process writes the same bytes."""
    return [
        (b"date", formatdate(request.order.created_s, usegmt=True).encode()),
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
        (b"x-request-id", request.order.request.encode("latin-1")),
    ]


def stream_head(request: Request, *, is_kept_alive: bool) -> bytes:
    """The bytes of an HTTP/1.1 response before its first chunk. `is_kept_alive`: the connection is open for more requests."""
    lines = [b"HTTP/1.1 200 OK", *(name + b": " + value for name, value in stream_headers(request))]
    if not is_kept_alive:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b""])


def as_chunk(event: bytes) -> bytes:
    """One event as one chunk of a chunked HTTP/1.1 body."""
    return b"%x\r\n%b\r\n" % (len(event), event)


LAST_CHUNK = b"0\r\n\r\n"


class StreamEvents:
    """The events of one request after turn `start`, as they become visible. Nothing is written twice, nothing is left out."""

    def __init__(self, request: Request, writer: ChunkWriter, start: int = 0) -> None:
        """`start`: the id of the last event that the client has; 0: it has none. Raises: ValueError for a later turn than can
        have been sent.
        """
        self._request, self._writer = request, writer
        self._has_ids = request.order.is_resumable
        self._turn = min(start, len(request.turns))  # turns that have been returned, or that the client has
        self._cursors = [0] * len(request.sequences)  # the next token of each sequence
        self._is_opened = start > 0
        self.start = start
        self._has_retry = start > 0
        self.is_done = False
        self._start_after_turns = start - self._turn
        if self._start_after_turns and not (request.is_over and start <= len(request.turns) + len(self._last())):
            raise ValueError(f"expected at most {len(request.turns)}, the number of the newest event, got {start}")
        # nothing is left, and nothing will come
        self.is_empty = request.is_over and start == len(request.turns) + len(self._last())
        for turn in request.turns[: self._turn]:
            if turn < PING_TURN:
                self._cursors[turn] += 1

    def take(self, stop: int | None = None) -> list[bytes]:
        """The events that became visible since the last call, each as its bytes. [] after the last one.

        `stop`: only those of turns below it.
        """
        events = [] if self._is_opened else [line + b"\n" for line in self._writer.openings()]
        self._is_opened = True
        for turn in self._request.turns[self._turn : stop]:
            self._turn += 1
            event = self._event(turn)
            if event:
                events.append(event)
        if self._request.is_over and not self.is_done and stop is None:
            self.is_done = True
            last = self._last()
            for number, line in list(enumerate(last, self._turn + 1))[self._start_after_turns :]:
                events.append(self._finished(line, number))
        return events

    def _event(self, turn: int) -> bytes:
        if turn == PING_TURN:
            return PING
        if turn >= END_TURN:
            line = self._writer.ending(self._request.sequences[turn - END_TURN])
        else:
            number = self._cursors[turn]
            self._cursors[turn] = number + 1
            line = self._writer.token(self._request.sequences[turn], number)
        return self._finished(line, self._turn) if line else b""

    def _finished(self, line: bytes, number: int) -> bytes:
        # the id comes after the data, so that a client that has read it has read the data
        if not self._has_ids:
            return line + b"\n"
        if self._has_retry:
            return b"%bid: %d\n\n" % (line, number)
        self._has_retry = True
        return b"%bid: %d\n%b\n" % (line, number, _RETRY)

    def _last(self) -> list[bytes]:
        """The lines of the events after the last turn of a request that is over."""
        failure = failure_of(self._request)
        if failure is not None:
            return [b"data: " + bytes(error_response(refusal_of(failure)).body) + b"\n", DONE]
        usage = self._writer.usage()
        return [usage, DONE] if usage else [DONE]


@dataclass(frozen=True)
class Begun:
    """What a client has of a response whose gateway has died. `n_chunks` or `n_bytes` is known, the other one is 0.

    `n_bytes`: with the head. `n_more_head_bytes`: by how much its head is longer than `stream_head` of a kept connection.
    """

    n_chunks: int = 0
    n_bytes: int = 0
    n_more_head_bytes: int = 0

    @property
    def is_something(self) -> bool:
        """True if the client has a part of the response."""
        return self.n_chunks > 0 or self.n_bytes > 0

    def can_go_on(self, request: Request, events: StreamEvents) -> bool:
        """True if the rest of the stream follows what the client has. `events`: new ones from where the response began.

        Tokens that were shown while the disk refused writes are computed again. One sequence gives the same events again;
        several sequences may give them in another order.
        """
        if len(request.sequences) == 1 or request.n_restored_turns is None:
            return True
        chunks = [as_chunk(event) for event in events.take(request.n_restored_turns)]
        n_head_bytes = len(stream_head(request, is_kept_alive=True)) + self.n_more_head_bytes
        is_over = request.n_restored_turns == len(request.turns) and request.is_over
        return is_over or (self.n_chunks <= len(chunks) and self.n_bytes <= n_head_bytes + sum(map(len, chunks)))


class StreamBytes:
    """All bytes of a streamed HTTP/1.1 response after its first `skip_bytes`, which another process has written already."""

    def __init__(self, events: StreamEvents, head: bytes, skip_bytes: int = 0) -> None:
        """`events` from where that response began; `head` as `stream_head` returns it."""
        self._events, self._unread, self._skip_bytes = events, head, skip_bytes

    @property
    def is_done(self) -> bool:
        """True if `take` has returned the end of the response."""
        return self._events.is_done

    @property
    def n_missing(self) -> int:
        """Bytes that were written, but that the visible part of the request does not have yet; 0 unless records were lost."""
        return self._skip_bytes

    def take(self) -> bytes:
        """The bytes that became visible since the last call; b"" if there are none."""
        if self._events.is_done:
            return b""
        more = self._unread + b"".join(map(as_chunk, self._events.take()))
        self._unread = b""
        if self._events.is_done:
            more += LAST_CHUNK
        n_skipped = min(self._skip_bytes, len(more))
        self._skip_bytes -= n_skipped
        return more[n_skipped:]
