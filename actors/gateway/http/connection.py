"""One HTTP connection, as uvicorn drives it: deadlines for what a client sends and takes, and a bound on how many there are.

A client that sends its request slower than it may is told 408 and cut; one that takes nothing of what was written to it is cut
without a word; one that comes while too many are connected is told 503. Far beyond that bound nobody is told anything.
"""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from actors.gateway.http.errors import error_body, error_response
from actors.gateway.http.hangup import EXTENSION, Hangup
from actors.gateway.requests.refusals import Refusal

_SPARE_CONNECTIONS = 256  # above the bound: enough to say no to a crowd


@dataclass(frozen=True)
class ConnectionLimits:
    """`head_s`: from the connection (or the first byte of a later request) to the end of the headers; `body_s`: to the end of
    the body; a request that comes while an earlier one is being answered has its time from the end of that answer.
    `unread_s`: so long bytes may wait here of which the client's machine takes none. `on_cut` hears why a client was turned
    away: "slow", "unread" or "many".
    """

    most: int
    head_s: float
    body_s: float
    unread_s: float
    on_cut: Callable[[str], None]


class Connection(HttpToolsProtocol):
    """See the file's header."""

    def __init__(self, limits: ConnectionLimits, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._limits = limits
        self._since_s = 0.0  # since when the client has kept this gateway waiting for the rest of a request, 0: it does not
        self._is_reading = False  # a request has begun to come, and not all of it is here
        self._is_head_read = False
        self._unread_bytes = 0  # at the last look,
        self._unread_since_s = 0.0  # and when it was seen to shrink
        self._hangup = Hangup()

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._since_s = self.loop.time()
        n_before = len(self.connections) - 1
        if n_before >= self._limits.most:
            self._limits.on_cut("many")
            self.app: Any = _turned_away(self._limits.most)
        if n_before >= self._limits.most + _SPARE_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._hangup.tell()

    def data_received(self, data: bytes) -> None:
        if not self._since_s and not self._is_answering:
            self._since_s, self._is_head_read = self.loop.time(), False
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._is_reading, self._is_head_read = True, False
        if not self._since_s and not self._is_answering:
            self._since_s = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_head_read = True
        self.scope["extensions"] = {EXTENSION: self._hangup}  # pyright: ignore[reportGeneralTypeIssues]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._since_s, self._is_reading = 0.0, False
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # a large body has paused it, and a hangup would not be seen

    def on_response_complete(self) -> None:
        if self._is_reading and not self._since_s:
            self._since_s = self.loop.time()
        super().on_response_complete()

    @property
    def _is_answering(self) -> bool:
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    @property
    def n_unread(self) -> int:
        """Bytes that the client's machine has not confirmed; one more while an answer is being made."""
        cycle = self.cycle
        is_answering = cycle is not None and not (cycle.more_body or cycle.response_complete or cycle.disconnected)
        return self.transport.get_write_buffer_size() + _in_kernel(self.transport) + is_answering

    def cut_if_slow(self, now_s: float) -> None:
        """Called about once a second, also while it is closing: that waits for the client to take what was written."""
        if self._is_unread_too_long(now_s):
            self._limits.on_cut("unread")
            self.transport.abort()
            return
        limit_s = self._limits.body_s if self._is_head_read else self._limits.head_s
        if not self._since_s or now_s - self._since_s <= limit_s or self.transport.is_closing():
            return
        self._limits.on_cut("slow")
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            what = "body" if self._is_head_read else "headers"
            self.transport.write(_too_slow(f"{what}: expected all of it within {limit_s:g} s, got less"))
        self.transport.close()

    def _is_unread_too_long(self, now_s: float) -> bool:
        before, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
        if not before or self._unread_bytes < before:
            self._unread_since_s = now_s
        return bool(self._unread_bytes) and now_s - self._unread_since_s > self._limits.unread_s


def _in_kernel(transport: asyncio.Transport) -> int:
    """Bytes sent but not confirmed; 0 where the system does not tell."""
    count = array("i", [0])
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
    except (OSError, ValueError, AttributeError):
        return 0
    return count[0]


def _turned_away(most: int) -> ASGIApp:
    """The application of a connection too many."""
    detail = f"connections: {most} are open, which is the limit"
    return error_response(
        Refusal("unavailable", detail, retry_after_s=1.0, name="too_many_connections"), {"Connection": "close"}
    )


def _too_slow(detail: str) -> bytes:
    body = msgspec.json.encode(error_body(408, detail, name="request_timeout"))
    head = f"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return head.encode() + b"\r\n\r\n" + body
