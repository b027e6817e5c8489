"""The bytes of a streamed HTTP/1.1 response: its head, its events as chunks, and what a client has of them after a death.

Head and events are pure functions of the request (`stream_events.py`), so a later process writes the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache

import numpy as np

from actors.gateway.bodies.fields.unknown_fields import IGNORED_HEADER
from actors.gateway.http.answers.load_headers import load_headers
from actors.gateway.http.answers.stream_events import StreamEvents, n_digits
from actors.gateway.http.formats.format import EVENT_STREAM
from actors.gateway.requests.request import Request
from actors.gateway.requests.stream_items import RUN_ITEM

LAST_CHUNK = b"0\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"


@lru_cache(maxsize=64)
def _date(unix_s: int) -> bytes:
    return formatdate(unix_s, usegmt=True).encode()


def stream_headers(request: Request, content_type: bytes) -> list[tuple[bytes, bytes]]:
    """The response headers of a stream. Its date is that of the request, so that a later process writes the same bytes."""
    headers = [
        (b"date", _date(int(request.spec.created_s))),
        (b"content-type", content_type),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
        (b"x-request-id", request.spec.shown_id.encode("latin-1")),
    ]
    if request.spec.ignored_fields:
        headers.append((IGNORED_HEADER.lower().encode(), request.spec.ignored_fields.encode()))
    if request.spec.cache_status:
        headers.append((b"x-cache", request.spec.cache_status.encode()))
    if request.spec.fallback:
        headers.append((b"x-fallback-model", request.spec.shown_fallback.encode()))
    if request.spec.similarity:
        headers.append((b"x-cache-similarity", request.spec.shown_similarity.encode()))
    headers += [(name.lower().encode(), value.encode()) for name, value in load_headers(request.spec).items()]
    headers.extend((name.encode(), value.encode()) for name, value in request.spec.limit_headers.items())
    if request.spec.trace is not None:
        headers += [(name.encode(), value.encode()) for name, value in request.spec.trace_headers.items()]
    return headers


def stream_head(request: Request, content_type: bytes = EVENT_STREAM, *, is_kept_alive: bool) -> bytes:
    """The bytes of an HTTP/1.1 response before its first chunk. `is_kept_alive`: the connection is open for more requests."""
    lines = [b"HTTP/1.1 200 OK", *(name + b": " + value for name, value in stream_headers(request, content_type))]
    if not is_kept_alive:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, CHUNKED, b""])


def as_chunk(event: bytes) -> bytes:
    """One event as one chunk of a chunked HTTP/1.1 body."""
    return b"%x\r\n%b\r\n" % (len(event), event)


@dataclass(frozen=True)
class Begun:
    """What a client has of a response whose gateway has died. `n_chunks` or `n_bytes` is known, the other one is 0.

    `n_bytes`: with the head. `n_more_head_bytes`: by how much its head is longer than `stream_head` of a kept connection.
    `run`: of the request, when the newest part of the response was written. `is_bare`: it has no chunks (HTTP/1.0).
    """

    n_chunks: int = 0
    n_bytes: int = 0
    n_more_head_bytes: int = 0
    run: int = 0
    is_bare: bool = False

    @property
    def is_something(self) -> bool:
        """True if the client has a part of the response."""
        return self.n_chunks > 0 or self.n_bytes > 0

    def n_head_bytes(self, request: Request, events: StreamEvents) -> int:
        """The length of the head of this response."""
        return len(stream_head(request, events.content_type, is_kept_alive=True)) + self.n_more_head_bytes

    def pass_written(self, request: Request, events: StreamEvents, n_head_bytes: int) -> int:
        """Pass those events that the client has, where their lengths are known without making them; returns their bytes with
        their chunks. `events`: new ones from where the response began."""
        openings = events.take(0)
        n_before = n_head_bytes + sum(map(len, self._chunks(openings)))
        if n_before > self.n_bytes:
            events.put_back(openings)
            return 0
        sizes = events.next_sizes(_end_of_run(request, self.run))
        if not self.is_bare:
            sizes = np.where(sizes > 0, sizes + n_digits(sizes, 16) + len(as_chunk(b"")) - 1, 0)
        ends = n_before + np.cumsum(sizes)
        n_passed = int(np.searchsorted(ends, self.n_bytes, side="right"))
        end = int(ends[n_passed - 1]) if n_passed else n_before
        events.skip(n_passed, has_events=end > n_before)
        return end - n_head_bytes

    def exceeds_journal(self, request: Request, events: StreamEvents, n_before_bytes: int) -> bool:
        """True if the client has more than what the journal had at the end of that run. `events`: from where the response
        began, or after what `pass_written` has passed; none of them is taken. `n_before_bytes`: of the head, and of what was
        passed.

        Tokens that were shown while the disk refused writes are computed again. One sequence gives the same events again;
        several sequences may give them in another order.
        """
        stop = _end_of_run(request, self.run)
        if stop is None:
            return False
        some = events.take(stop)
        events.put_back(some)
        return self.n_chunks > len(some) or self.n_bytes > n_before_bytes + sum(map(len, self._chunks(some)))

    def _chunks(self, events: list[bytes]) -> list[bytes]:
        return events if self.is_bare else [as_chunk(event) for event in events]


def _end_of_run(request: Request, run: int) -> int | None:
    """How many items the journal had at the end of a run of the request; None if that run has not ended, or everything was in
    the journal. Of a run that a damaged journal has lost, nothing is known: 0.
    """
    if len(request.sequences) == 1:
        is_whole = request.is_over and request.n_restored_items == len(request.stream_items)
        return None if is_whole else request.n_restored_items
    if run and run not in request.runs:
        return 0
    marks = [item for item, kind in enumerate(request.stream_items) if kind == RUN_ITEM]
    return next((mark for mark, begun in zip(marks, request.runs, strict=True) if begun > run), None)


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
