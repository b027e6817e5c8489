"""What one gateway sends to another: a client's call, the same call again after a death, and the news that the client has left;
and the connection over which it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import Scope

from actors.gateway.admission.caller import CALLER_HEADER
from actors.gateway.http.answers.stream_bytes import Begun
from actors.gateway.http.connection import Connection
from actors.gateway.other_gateways.unix_http import get

# paths and parameters of calls that only gateways make
AGAIN_PATH, RUN_PATH, RESPONSE_PATH = "/forwarded/again/", "/forwarded/run/", "/forwarded/response/"
TARGET, START = "target", "start"
_CHUNKS, _BYTES, _HEAD, _RUN, _BARE = "chunks", "bytes", "head", "run", "bare"
LEAVE_METHOD = "DELETE"
LEAVE = b"DELETE / HTTP/1.1\r\nhost: gateway\r\n\r\n"  # the client itself has left, not only the gateway that it had asked

_FORWARDED = (
    b"content-type", b"idempotency-key", b"x-request-id", b"last-event-id", b"traceparent", b"tracestate", b"cache-control",
    b"x-no-fallback",
)  # fmt: skip


@dataclass(frozen=True)
class ForwardedCall:
    """A client's call for a request that another gateway owns.

    `path`: of the call. `start`: the id of the last event that the client had before. `first`: the call as HTTP/1.1; b"": an
    earlier incarnation of this gateway has sent it.
    """

    request: str
    path: str
    start: int
    first: bytes = b""

    def again(self, begun: Begun) -> bytes:
        """Asks for the same response as `first`, from its beginning, but never begins a new request."""
        has = {_CHUNKS: begun.n_chunks, _BYTES: begun.n_bytes, _HEAD: begun.n_more_head_bytes, _RUN: begun.run}
        query = urlencode({TARGET: self.path, START: self.start, **has, _BARE: int(begun.is_bare)})
        return get(f"{AGAIN_PATH}{quote(self.request, safe='')}?{query}")

    def run(self) -> bytes:
        """Asks for the run of the newest visible part of the request, and for the present run: two numbers."""
        return get(f"{RUN_PATH}{quote(self.request, safe='')}")


def call_of(request: str, start: int, scope: Scope, body: bytes | bytearray, caller: bytes) -> ForwardedCall:
    """A call as its client has made it, with those headers that say which request it is. `caller`: who has sent it."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target), b"host: gateway", b"content-length: %d" % len(body)]
    lines += [name + b": " + headers[name] for name in _FORWARDED if name in headers]
    lines.append(CALLER_HEADER + b": " + caller.hex().encode())
    return ForwardedCall(request, scope["path"], start, b"\r\n".join([*lines, b"", b""]) + body)


def begun_of(parameters: Mapping[str, str]) -> Begun:
    """What the client has, by the parameters of a call that another gateway has made. Raises: ValueError."""
    n_chunks, n_bytes, n_head, run, bare = (int(parameters.get(n, "0")) for n in (_CHUNKS, _BYTES, _HEAD, _RUN, _BARE))
    return Begun(n_chunks, n_bytes, n_head, run, bool(bare))


class ForwardedConnection(Connection):
    """A connection over which another gateway forwards one call of a client.

    It distinguishes a client that has left (its gateway says so) from a gateway that has died, whose successor will ask again.
    """

    def on_headers_complete(self) -> None:
        parser: Any = self.parser
        if parser.get_method().decode() == LEAVE_METHOD:
            self.hangup.is_final = True
            self.transport.close()
            return
        self.hangup.is_final = False
        super().on_headers_complete()
