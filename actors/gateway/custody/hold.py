"""What the custodian holds for this gateway: a duplicate of each client connection with an answer under way, and what its
successor must know to go on with that answer. Where that is the request itself, `kept_request.py` has its bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from starlette.types import Scope

from actors.gateway.custody.held import Held
from actors.gateway.custody.kept_request import KeptRequest
from actors.gateway.custody.tcp_counts import tcp_counts

ANSWER_HOLD = "tardigrade.hold"  # key of a request's `AnswerHold` in the ASGI scope's extensions
MAX_PATH = 256  # characters of a held response's path
_encode = msgspec.msgpack.Encoder().encode


class HeldResponse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest response on a held connection."""

    request: str  # its id in the journal; "": nothing is under way, the connection waits for its next request
    path: str  # of the HTTP request
    start: int  # streams: the id of the event that the client had before this call; -1: no stream
    base_bytes: int  # bytes that had been written to the connection before the response
    read_bytes: int  # bytes read from it until the request was complete; -1: more than this request had been read
    keeps_alive: bool  # the connection stays open after the response
    origin: str = ""  # of the web page that may read the response, whose headers name it
    run: int = 0  # of the request (`Request.runs`) when the newest part of the response was written
    has_chunks: bool = True  # a stream is chunked; False: it ends with the connection (HTTP/1.0)
    # no journal has the request, and so many incarnations have computed the answer from its bytes; 0: a journal has it
    n_tries: int = 0


@dataclass(frozen=True)
class LeftConnection:
    """A connection that an earlier incarnation has left: its key at the custodian, the socket, its newest response, and the
    descriptor of the bytes of its request if no journal has it."""

    key: str
    socket: socket.socket
    response: HeldResponse
    request_fd: int | None = None

    def close(self) -> None:
        """Close the connection; its client is told at once, although the custodian has a duplicate."""
        self.cut()
        self.socket.close()
        if self.request_fd is not None:
            os.close(self.request_fd)

    def cut(self) -> None:
        """End the connection. The socket stays open, for the transport that has it now."""
        _shut_down(self.socket)


class Custodian(Protocol):
    """Holds descriptors by key. Neither method waits: what was put is held after the present turn of the event loop."""

    def put(self, hold: Held) -> None:
        """Give it a duplicate of the descriptor, or a new note of one that it has."""
        ...

    def tell(self) -> None:
        """Hand over now what this turn of the event loop has changed. By default that is at its end."""

    def drop(self, hold: Held) -> None:
        """Let the custodian close its duplicate of this descriptor."""
        ...


class WriteBuffer(Protocol):
    """What a hold needs of its connection's asyncio transport."""

    def get_write_buffer_size(self) -> int:
        """Bytes that were written to the transport and not to the socket."""
        ...


class AnswerHold(Protocol):
    """What the answer to one request tells the hold of its connection."""

    def begin(self, request: str, start: int = -1, run: int = 0) -> None:
        """The answer to this request begins; not one byte of it has been written. `start`, `run` as in `HeldResponse`."""
        ...

    def note_run(self, run: int) -> None:
        """What is written from now on belongs to this run of the request."""
        ...

    @property
    def was_accepted(self) -> bool:
        """True if an earlier incarnation has accepted this request."""
        ...

    def begin_computing(self, request: str, http_request: Callable[[], bytes]) -> None:
        """This request is accepted, and no journal has it; its answer is computed and then sent as a whole. If this process
        dies before that, the next one computes the answer. `http_request`: the bytes of the HTTP request."""
        ...


def answer_hold(scope: Scope) -> AnswerHold | None:
    """The hold of the connection of an ASGI call; None when nobody holds it."""
    return scope.get("extensions", {}).get(ANSWER_HOLD)


def was_accepted(scope: Scope) -> bool:
    """True for the request of an ASGI call that an earlier incarnation has accepted, so that nothing refuses it now."""
    hold = answer_hold(scope)
    return hold is not None and hold.was_accepted


class Hold(Held):
    """The hold of one connection. `fd` is its socket, open until `close`.

    `resumed`: what an earlier incarnation has left here; the custodian holds it already.
    """

    def __init__(
        self, custodian: Custodian, key: str, fd: int, transport: WriteBuffer, resumed: HeldResponse | None = None
    ) -> None:
        self._custodian, self._transport = custodian, transport
        self.key, self.fd = key, fd
        self.response: HeldResponse | None = resumed
        self._kept_request: KeptRequest | None = None
        self._is_resumed = resumed is not None and bool(resumed.request)  # the next answer to begin is that one
        if resumed is not None:
            custodian.put(self)

    @property
    def meta(self) -> bytes:
        return _encode(self.response)

    def begin(
        self,
        request: str,
        path: str,
        start: int,
        origin: str,
        run: int = 0,
        *,
        is_alone: bool,
        keeps_alive: bool,
        has_chunks: bool = True,
        n_tries: int = 0,
    ) -> None:
        """An answer begins; the fields are those of `HeldResponse`. `is_alone`: nothing has been read after its request."""
        if self._is_resumed:
            self._is_resumed = False
            self.note_run(run)
            return
        counts = tcp_counts(self.fd)
        if counts is None:
            return
        base = counts.written_bytes + self._transport.get_write_buffer_size()
        read_bytes = counts.read_bytes if is_alone else -1
        about = keeps_alive, origin, run, has_chunks, n_tries
        self.response = HeldResponse(request, path, start, base, read_bytes, *about)
        self._custodian.put(self)

    def note_run(self, run: int) -> None:
        """What is written from now on belongs to this run of the request. One that is older than the known one is a part of a
        resumed response that its client has already.
        """
        if self.response is not None and run > self.response.run:
            self.response = msgspec.structs.replace(self.response, run=run)
            self._custodian.put(self)

    def keep(self, kept_request: KeptRequest) -> None:
        """Hold the bytes of the request too, until its answer has been sent."""
        self._kept_request, self._is_resumed = kept_request, False
        self._custodian.put(kept_request)

    @property
    def has_request(self) -> bool:
        """True while the bytes of the request that is answered are held."""
        return self._kept_request is not None

    def let_go(self) -> None:
        """The answer is complete: if the bytes of its request were held, nothing of this connection is held any more."""
        if self.has_request:
            self._drop_request()
            self.response = None
            self._custodian.drop(self)

    def _drop_request(self) -> None:
        kept, self._kept_request = self._kept_request, None
        if kept is not None:
            self._custodian.drop(kept)
            kept.close()

    def begin_idle(self) -> bool:
        """Nothing is under way, and nothing more will be read here. Returns False when the successor cannot go on."""
        counts = tcp_counts(self.fd)
        if counts is None:
            return False
        self.response = HeldResponse("", "", -1, counts.written_bytes, counts.read_bytes, keeps_alive=True)
        self._custodian.put(self)
        self._custodian.tell()  # this process ends soon, perhaps before its next turn
        return True

    def close(self) -> None:
        """The connection is lost or is being closed. The client is told at once, not when the last duplicate is closed."""
        self._drop_request()
        if self.response is None:
            return
        self.response = None
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, self.fd)
        _shut_down(one)
        one.detach()
        self._custodian.drop(self)


def _shut_down(one: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is not connected any more
        one.shutdown(socket.SHUT_RDWR)
