"""What an endpoint of the HTTP API is: a method, a path, and a function of the gateway's services and one call."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from actors.gateway.admission.admission import Admission
from actors.gateway.dispatch.request_desk import RequestDesk
from actors.gateway.requests.refusals import invalid
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.tokenizer import TextModel
from messages.wire.message import NO_TRACE

# An id that clients may give. The answer repeats it in a header, so it has no characters that a header cannot carry.
_REQUEST_ID = re.compile(r"[ -~]{1,256}")
_REQUEST_ID_RULE = "1 to 256 printable ASCII characters"
_TRACEPARENT_PARTS, _TRACE_HEX_DIGITS = 4, 32


class Status(Protocol):
    """Health and metrics of the server, which the gateway's actor provides to the endpoints."""

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests can be served now, and the JSON of /v1/health."""
        ...

    async def summary(self) -> dict[str, Any]:
        """The JSON of /v1/metrics."""
        ...

    async def exposition(self) -> bytes:
        """The Prometheus text of the whole server."""
        ...


@dataclass(frozen=True)
class Services:
    """What endpoints work with. `started_s` is Unix time."""

    settings: GatewaySettings
    model: TextModel
    admission: Admission
    desk: RequestDesk
    status: Status
    started_s: int


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request.

    `request_id`: the client's X-Request-Id, empty without a usable one. `trace_id`: 16 bytes from `traceparent`, empty without
    a valid one. `body`: empty for a GET. `path_parameters`: the values of the path's patterns by name.
    """

    request_id: str
    trace_id: bytes
    body: bytearray
    path_parameters: Mapping[str, str]


Handler = Callable[[Services, Call], Awaitable[ASGIApp]]


@dataclass(frozen=True)
class Endpoint:
    """One route. Each file in `endpoints/` has a tuple ENDPOINTS of routes, and `api.py` lists the files.

    `needs_open`: the body is read only if requests are accepted now; otherwise the server answers before it reads.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    needs_open: bool = False


def request_id_of(given: str) -> str:
    """The client's X-Request-Id if it can be used; empty otherwise."""
    return given if _REQUEST_ID.fullmatch(given) else ""


def checked_request_id(given: str | None) -> str:
    """The `request_id` of a body; empty without one. Raises: Refusal, by the same rule as for the header."""
    if given is not None and not _REQUEST_ID.fullmatch(given):
        raise invalid("request_id", _REQUEST_ID_RULE, given)
    return given or ""


def trace_id_of(traceparent: str) -> bytes:
    """The 16 bytes of trace id in a `traceparent` header; empty when the header is not valid (such a header is ignored)."""
    if not traceparent:
        return NO_TRACE
    parts = traceparent.strip().split("-")
    if len(parts) < _TRACEPARENT_PARTS or len(parts[1]) != _TRACE_HEX_DIGITS or parts[0] == "ff":
        return NO_TRACE
    try:
        trace_id = bytes.fromhex(parts[1])
    except ValueError:
        return NO_TRACE
    return trace_id if any(trace_id) else NO_TRACE


def json_response(value: object, status: int = 200) -> Response:
    """A value as a JSON response."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")
