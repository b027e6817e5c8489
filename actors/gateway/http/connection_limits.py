"""The limits of one HTTP connection, and the answers to a client that passes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from starlette.types import ASGIApp

from actors.gateway.connections.caller_connections import CallerConnections
from actors.gateway.http.browser_rules import BrowserRules
from actors.gateway.http.errors import error_body, error_response
from actors.gateway.requests.refusals import Refusal
from actors.gateway.settings import GatewaySettings
from messages.descriptors.open_files import most_open_files

MAX_HEAD_BYTES = 16 << 10  # request line and headers together; trailers after a body; extensions between its chunks


@dataclass(frozen=True)
class ConnectionLimits:
    """Deadlines of a connection. Times start with the connection, with the first byte of a later request, or, if a request
    arrives while an earlier one is answered, with the end of that answer.
    """

    most_connections: Callable[[], int]  # asked with each new connection
    head_s: float  # to the end of the headers
    body_s: float  # to the end of the body
    unread_s: float  # longest time for which bytes may wait while the client's machine accepts none
    on_cut: Callable[
        [str], None
    ]  # called with the reason when a client is disconnected: "slow", "unread", "many", "caller", "files" or "head"
    browsers: BrowserRules
    on_refused: Callable[[Refusal], object]  # called with the refusal of a request that no endpoint sees
    callers: CallerConnections | None = None  # None: no caller has a bound of its own
    in_reserve: set[object] = field(default_factory=set[object])  # connections that are open although no file can be opened

    @classmethod
    def of(
        cls,
        settings: GatewaySettings,
        most_connections: Callable[[], int],
        on_cut: Callable[[str], None],
        browsers: BrowserRules,
        on_refused: Callable[[Refusal], object],
        *,
        are_clients: bool,
    ) -> ConnectionLimits:
        """The limits with the times of these settings. `are_clients`: False for a server that other gateways alone use."""
        head_s, body_s, unread_s = settings.head_s, settings.body_s, settings.unread_s
        # other gateways, which come by a unix socket, have asked their callers already
        callers = CallerConnections.of(settings, most_connections, on_cut) if are_clients else None
        return cls(most_connections, head_s, body_s, unread_s, on_cut, browsers, on_refused, callers)


def too_many_connections(limit: int) -> Refusal:
    """The refusal of every request of a connection above the limit."""
    detail = f"connections: expected at most {limit} open ones (gateway.max_connections, or the limit of open files), got more"
    return Refusal("too_many_connections", detail, retry_after_s=1.0, limit=f"max_connections={limit}")


def no_file_left() -> Refusal:
    """The refusal of every request of a new connection while this process can open no file."""
    detail = f"connections: too few file descriptors are free for another one, of {most_open_files()}"
    return Refusal("too_many_connections", detail, retry_after_s=1.0, limit=f"open_files={most_open_files()}")


def too_large_head(got: str) -> Refusal:
    """The refusal of headers above MAX_HEAD_BYTES. `got`: what came, for the message."""
    return Refusal(
        "headers_too_large",
        f"headers: expected at most {MAX_HEAD_BYTES} bytes, got {got}",
        limit=f"max_head_bytes={MAX_HEAD_BYTES}",
    )


def refusing(refusal: Refusal) -> ASGIApp:
    """The application that answers with a refusal, after which the connection is closed."""
    return error_response(refusal, {"Connection": "close"})


def last_answer(refusal: Refusal) -> bytes:
    """A whole HTTP/1.1 response, written to a connection that is closed after it."""
    body = msgspec.json.encode(error_body(refusal.status, refusal.detail, name=refusal.fine_code))
    head = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
