"""Sends the events of a stream, each in its own chunk, so that the bytes on the wire do not depend on when they were sent.

A client that speaks HTTP/1.0 knows no chunks: it gets the events alone, and the end of the connection is the end of the body.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from starlette.types import Scope, Send

from actors.gateway.http.answers.stream_bytes import as_chunk

EXTENSION = "tardigrade.chunks"  # key of a connection's `OwnConnection` in the ASGI scope's extensions
Headers = list[tuple[bytes, bytes]]


class ChunkSender(Protocol):
    """Sends one streamed response. Each method waits while the client reads too slowly."""

    async def begin(self, headers: Headers) -> None:
        """Send status 200 and the headers."""
        ...

    async def send(self, events: list[bytes]) -> None:
        """Send events, each in a chunk of its own."""
        ...

    async def end(self, last: bytes) -> None:
        """Send the last event and the end of the response."""
        ...

    @property
    def can_send_now(self) -> bool:
        """True if `send_now` may be called now."""
        return False

    def send_now(self, events: list[bytes]) -> None:
        """As `send`, without a wait."""
        raise AssertionError("only where `can_send_now`")


class AsgiSender(ChunkSender):
    """Sends by ASGI messages alone, one for each event."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def begin(self, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(self, events: list[bytes]) -> None:
        for event in events:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self, last: bytes) -> None:
        await self._send({"type": "http.response.body", "body": last})


class ConnectionSender(AsgiSender):
    """Sends over one connection of uvicorn: all events that are ready in one write. `cycle`: uvicorn's state of the request.
    `granted`: headers of every answer to this request, for a page of another origin. `has_chunks` False: to HTTP/1.0.
    """

    def __init__(self, send: Send, cycle: Any, granted: Headers, *, has_chunks: bool) -> None:
        super().__init__(send)
        self._cycle, self._granted, self._has_chunks = cycle, granted, has_chunks

    async def begin(self, headers: Headers) -> None:
        # uvicorn's date of now would differ when another process writes the same response
        self._cycle.default_headers = self._granted
        if not self._has_chunks:
            self._cycle.chunked_encoding = False  # uvicorn would choose chunks for every body of unknown length
        await super().begin(headers)

    async def send(self, events: list[bytes]) -> None:
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if not cycle.disconnected:
            self.send_now(events)

    @property
    def can_send_now(self) -> bool:
        cycle = self._cycle
        return not (cycle.flow.write_paused or cycle.disconnected)

    def send_now(self, events: list[bytes]) -> None:
        if self._has_chunks and len(events) == 1:  # the most frequent case
            self._cycle.transport.write(as_chunk(events[0]))
        elif events:
            self._cycle.transport.write(b"".join(map(as_chunk, events) if self._has_chunks else events))

    async def end(self, last: bytes) -> None:
        if not self._has_chunks:
            await self.send([last])
            last = b""  # uvicorn knows no length that it could belong to
        await super().end(last)


class OwnConnection:
    """What the scope of an ASGI call knows of its connection. The reference to uvicorn's state is weak, because that state
    refers to the scope: the memory of a request is freed at once, without a cycle.
    """

    def __init__(self, cycle: Any, granted: Headers, *, has_chunks: bool) -> None:
        """The arguments are those of `ConnectionSender`."""
        self._cycle, self._granted, self._has_chunks = weakref.ref(cycle), granted, has_chunks

    def sender(self, send: Send) -> ConnectionSender | None:
        """The sender of the running ASGI call; None when its connection is gone."""
        cycle = self._cycle()
        return None if cycle is None else ConnectionSender(send, cycle, self._granted, has_chunks=self._has_chunks)

    def cut(self) -> None:
        """End the connection after what was written, in the middle of the answer. The running ASGI call may return then."""
        if (cycle := self._cycle()) is not None:
            cycle.disconnected = True
            cycle.transport.close()

    def note_endless(self) -> None:
        """The answer has no end of its own, and nobody waits for what its client has not read: see `is_endless`."""
        if (cycle := self._cycle()) is not None:
            cycle.is_endless = True


def cut(scope: Scope) -> None:
    """End the connection of an ASGI call whose answer cannot go on, after what was written."""
    own: OwnConnection | None = scope.get("extensions", {}).get(EXTENSION)
    if own is not None:
        own.cut()


def is_endless(cycle: Any) -> bool:
    """True while the answer of this state of uvicorn, None without a request, has no end of its own."""
    return getattr(cycle, "is_endless", False) and not cycle.response_complete


def chunk_sender(scope: Scope, send: Send) -> ChunkSender:
    """The sender for one ASGI call. Under a server without such a connection (as in tests), ASGI messages are sent."""
    own: OwnConnection | None = scope.get("extensions", {}).get(EXTENSION)
    sender = own.sender(send) if own is not None and scope["method"] != "HEAD" else None
    return sender or AsgiSender(send)
