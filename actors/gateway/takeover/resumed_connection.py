"""A connection that an earlier incarnation of this gateway has left: between two requests, before a response that is computed
again, or in the middle of a response. Here the response goes on.

uvicorn's protocol makes the response again, and the bytes that the dead incarnation has written are left out. So the rest
has uvicorn's framing, its flow control and this server's deadlines. Afterwards the connection is like any other.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog
from starlette.types import ASGIApp

from actors.gateway.connections.caller_connections import CallerConnections, ConnectionPlace
from actors.gateway.custody.hold import Custodian, HeldResponse, Hold, LeftConnection
from actors.gateway.custody.kept_request import KeptRequest, read_request
from actors.gateway.http.connection import Connection
from actors.gateway.http.connection_limits import ConnectionLimits

_REQUEST = b"POST / HTTP/%s\r\n%s\r\n"  # stands for the request, which the dead incarnation has read
CLOSE = b"connection: close\r\n"


class _TakenConnection(Connection):
    """A connection of an earlier incarnation. It stays at the custodian under the same key: under two keys, the next
    incarnation would read one connection twice.
    """

    def __init__(
        self, left: LeftConnection, limits: ConnectionLimits, custodian: Custodian | None, **uvicorn_arguments: Any
    ) -> None:
        super().__init__(limits, custodian, **uvicorn_arguments)
        self._left = left

    def _hold_again(self, transport: asyncio.Transport, response: HeldResponse) -> Hold | None:
        """Let the custodian hold it with this response; None where nobody holds connections."""
        if self._custodian is not None:
            fd = transport.get_extra_info("socket").fileno()
            self._hold = Hold(self._custodian, self._left.key, fd, transport, response)
        return self._hold

    def _new_place(self, callers: CallerConnections) -> ConnectionPlace:
        return callers.keep()


class IdleConnection(_TakenConnection):
    """Waits for the next request on the connection of `left`, on which nothing is under way."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._hold_again(transport, self._left.response)


class _AcceptedConnection(_TakenConnection):
    """One whose request an earlier incarnation has accepted."""

    def _limit(self) -> None:
        """A connection that was accepted once is not one too many."""
        if self._limits.callers is not None:
            self._enter(self._limits.callers)


class RepeatedConnection(_AcceptedConnection):
    """Answers the request of `left` from its beginning: no byte of the answer has been sent, and nothing was read behind the
    request. `fd`: the bytes of the request.
    """

    def __init__(
        self, left: LeftConnection, fd: int, limits: ConnectionLimits, custodian: Custodian | None, **uvicorn_arguments: Any
    ) -> None:
        super().__init__(left, limits, custodian, **uvicorn_arguments)
        self._fd = fd

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        kept, response = KeptRequest(self._left.key, self._fd), self._left.response
        hold = self._hold_again(transport, msgspec.structs.replace(response, n_tries=response.n_tries + 1))
        if hold is None:
            kept.close()
            transport.abort()
        else:
            hold.keep(kept)
            self.data_received(read_request(self._fd))


class ResumedConnection(_AcceptedConnection):
    """Sends the rest of the response of `left`. The client has the first `n_written` bytes of what `answer` makes already.

    `is_at_boundary`: the dead incarnation has read the request and nothing after it, so the connection can serve a next one.
    Otherwise what comes is the rest of a request whose beginning is gone. Nobody reads it as a request of its own.
    """

    def __init__(
        self,
        left: LeftConnection,
        answer: ASGIApp,
        n_written: int,
        is_at_boundary: bool,
        limits: ConnectionLimits,
        custodian: Custodian | None,
        **uvicorn_arguments: Any,
    ) -> None:
        super().__init__(left, limits, custodian, **uvicorn_arguments)
        self._answer, self._is_at_boundary = answer, is_at_boundary
        self._remainder: Remainder | None = Remainder(n_written)
        self._is_beginning = True

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._hold_again(transport, self._left.response)
        usual, self.app = self.app, self._answer
        response = self._left.response
        version = b"1.1" if response.has_chunks else b"1.0"
        self.data_received(_REQUEST % (version, b"" if response.keeps_alive else CLOSE))
        self.app: Any = usual
        self._is_beginning = False
        assert self._remainder is not None
        self.cycle.transport = _RemainderTransport(transport, self._remainder)

    def data_received(self, data: bytes) -> None:
        if self._is_at_boundary or self._is_beginning:
            super().data_received(data)

    def _granted_origin(self) -> str:
        """The resumed response keeps the origin that it began with, whatever the settings allow by now."""
        return self._left.response.origin if self._is_beginning else super()._granted_origin()

    def on_response_complete(self) -> None:
        remainder, self._remainder = self._remainder, None
        if remainder is not None and not remainder.is_reached:
            if (
                self._is_at_boundary
            ):  # otherwise the client has had a part of a later answer as well, which nobody can go on with
                request = self._left.response.request
                structlog.get_logger().error("resumed response is not the one that had begun", request=request)
            self.transport.abort()
        elif remainder is not None and not self._is_at_boundary:
            self.transport.close()
        super().on_response_complete()


class _RemainderTransport(asyncio.Transport):
    """The transport of one response: it writes what the client does not have yet."""

    def __init__(self, transport: asyncio.Transport, remainder: Remainder) -> None:
        super().__init__()
        self._transport, self._remainder = transport, remainder

    def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = self._remainder.push(bytes(data))
        if rest:
            self._transport.write(rest)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()


class Remainder:
    """Cuts the first `n_written` bytes, which the client has, off a response that is made again from its beginning. Pure."""

    def __init__(self, n_written: int) -> None:
        self._n_left = n_written

    @property
    def is_reached(self) -> bool:
        """True if all that the earlier incarnation had written was made again."""
        return self._n_left == 0

    def push(self, data: bytes) -> bytes:
        """The next bytes of the whole response; returns those that the client does not have."""
        n = min(self._n_left, len(data))
        self._n_left -= n
        return data[n:]
