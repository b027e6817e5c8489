"""One connection to an HTTP server that streams completions: raw asyncio protocol, kept alive between requests.

Measured with `python -m ops.bench self-test`: see docs/performance.md for chunks per second. General HTTP clients manage a
tenth of that, and would be what is measured.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from asyncio import Protocol as StreamProtocol  # no protocol in the sense of types
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from supervisor.bench.http.completion_events import MeasuredAnswer
from supervisor.bench.http.response import BrokenResponse, EventSplitter, HttpResponse


@dataclass(frozen=True)
class Target:
    """Where requests go."""

    url: str  # http://host:port, perhaps with a path in front of /v1
    api_key: str = ""
    timeout_s: float = 600.0  # of one request
    keeps_connections: bool = True  # False: each request has a connection of its own
    headers: Mapping[str, str] = field(default_factory=dict)  # more of them, for every request
    tls: ssl.SSLContext | None = None  # whom https trusts; None: whom the system trusts

    @property
    def host(self) -> str:
        """Name or address."""
        return urlsplit(self.url).hostname or "127.0.0.1"

    @property
    def is_tls(self) -> bool:
        """https?"""
        return urlsplit(self.url).scheme == "https"

    @property
    def port(self) -> int:
        """The port, also where the URL leaves it out."""
        return urlsplit(self.url).port or (443 if self.is_tls else 80)

    def request_bytes(self, path: str, body: object) -> bytes:
        """A POST of JSON as it goes onto the wire."""
        content = msgspec.json.encode(body)
        parts = urlsplit(self.url)
        head = [
            f"POST {parts.path.removesuffix('/').removesuffix('/v1')}{path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            f"Content-Length: {len(content)}",
            *([] if self.keeps_connections else ["Connection: close"]),
            *([f"Authorization: Bearer {self.api_key}"] if self.api_key else []),
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return ("\r\n".join(head) + "\r\n\r\n").encode() + content


class StreamConnection(StreamProtocol):
    """A connection that carries one request after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._response = HttpResponse()
        self._events = EventSplitter()
        self._answer: MeasuredAnswer | None = None
        self._refusal = b""
        self._done: asyncio.Future[None] | None = None

    @property
    def is_usable(self) -> bool:
        """May another request be sent on it?"""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes, answer: MeasuredAnswer, timeout_s: float) -> None:
        """Send a request and fill in its answer; errors end up in the answer."""
        assert self._transport is not None
        self._response, self._events, self._refusal = HttpResponse(), EventSplitter(), b""
        self._answer, self._done = answer, asyncio.get_running_loop().create_future()
        answer.sent_s = time.perf_counter()
        self._transport.write(request)
        try:
            async with asyncio.timeout(timeout_s):
                await self._done
        except TimeoutError:
            answer.fail("timeout", f"no end within {timeout_s:g} s")
            self.close()
        except asyncio.CancelledError:
            self.close()
            raise
        answer.ended_s = time.perf_counter()
        self._answer = None

    def close(self) -> None:
        """Leave at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read bytes of the response. Bytes that nobody asked for, or that are no HTTP, close the connection."""
        answer = self._answer
        if answer is None:
            self.close()  # nobody asked
            return
        try:
            body = self._response.feed(data)
        except (BrokenResponse, ValueError) as error:
            answer.fail("bad_http", str(error))
            self.close()
            return
        if self._response.status and not answer.status:
            answer.begin(self._response.status)
        if body:
            self._handle_body(answer, body)
        if self._response.is_complete:
            self._finish(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer that is under way: it was cut if the response is not complete."""
        answer, self._transport = self._answer, None
        if answer is None or self._done is None or self._done.done():
            return
        self._response.end()
        if not self._response.is_complete:
            answer.fail("cut", f"the connection ended after {len(answer.text_s)} chunks: {exc or 'closed'}")
        self._finish(answer)

    def _handle_body(self, answer: MeasuredAnswer, body: bytes) -> None:
        if self._response.status != 200:
            self._refusal += body[:2000]
            return
        now_s = time.perf_counter()
        for data in self._events.feed(body):
            answer.handle(data, now_s)

    def _finish(self, answer: MeasuredAnswer) -> None:
        if self._response.status != 200 and not answer.error:
            answer.fail(f"http_{self._response.status}", self._refusal[:300].decode(errors="replace"))
        if not self._response.keeps_connection:
            self.close()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class ConnectionPool:
    """Idle connections to one target; grows by as many as are used at once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._idle: list[StreamConnection] = []

    async def ask(self, request: bytes, answer: MeasuredAnswer) -> None:
        """Send a request on an idle or a new connection and fill in its answer."""
        connection = self._pop_idle() or await self._connect(answer)
        if connection is None:
            answer.ended_s = time.perf_counter()
            return
        await connection.ask(request, answer, self.target.timeout_s)
        if not self.target.keeps_connections:
            connection.close()
        elif connection.is_usable:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _pop_idle(self) -> StreamConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def _connect(self, answer: MeasuredAnswer) -> StreamConnection | None:
        loop, target = asyncio.get_running_loop(), self.target
        try:
            async with asyncio.timeout(target.timeout_s):
                _, connection = await loop.create_connection(
                    StreamConnection, target.host, target.port, ssl=(target.tls or True) if target.is_tls else None
                )
        except (OSError, TimeoutError) as error:
            answer.fail("connect", str(error))
            return None
        return connection
