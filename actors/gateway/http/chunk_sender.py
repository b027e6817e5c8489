"""Sends the events of a stream, each in a chunk of its own: so the bytes on the wire do not depend on when they were sent."""

from __future__ import annotations

from typing import Any, Protocol

from starlette.types import Scope, Send

from actors.gateway.http.stream_events import as_chunk

EXTENSION = "tardigrade.chunks"  # key of a connection's `ConnectionSender` in the ASGI scope's extensions
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
    """Sends over one connection of uvicorn: all events that are ready in one write. `cycle`: uvicorn's state of it. `granted`:
    headers of every answer to this request, for a page of another origin.
    """

    def __init__(self, cycle: Any, granted: Headers) -> None:
        super().__init__(cycle.send)
        self._cycle, self._granted = cycle, granted

    async def begin(self, headers: Headers) -> None:
        self._cycle.default_headers = (
            self._granted
        )  # the present date would differ when another process writes the same response
        await super().begin(headers)

    async def send(self, events: list[bytes]) -> None:
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if events and not cycle.disconnected:
            cycle.transport.write(b"".join(map(as_chunk, events)))


def chunk_sender(scope: Scope, send: Send) -> ChunkSender:
    """The sender for one ASGI call. Under a server without such a connection (as in tests), ASGI messages are sent."""
    own = scope.get("extensions", {}).get(EXTENSION)
    return AsgiSender(send) if own is None or scope["method"] == "HEAD" else own
