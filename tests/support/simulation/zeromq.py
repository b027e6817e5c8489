"""The ZeroMQ sockets between clients and gateways, in virtual time: a ROUTER of each gateway, a DEALER of each client.

What is sent arrives a little later, in order. A connection may break: what is on its way may be lost, its ROUTER knows the
other end no more, and its DEALER notices it and connects again. Nobody connects to a process that is stopped, and a
connection to one breaks after six seconds, as with the heartbeats of libzmq. Now and then a pipe is full. Messages may also
be lost or come twice, which is worse than libzmq does to one connection.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import zmq

from actors.gateway.zeromq import public_socket
from messages.client import link as client_link
from messages.transport import zmq_options
from tests.support.simulation.edges import Edges
from tests.support.simulation.network import Loss
from tests.support.simulation.virtual_loop import PROCESS, LifeState, SimulatedLife, VirtualLoop

_DELAY_S, _NOTICE_S, _RETRY_S, _FULL_S = (50e-6, 2e-3), (1e-4, 3e-3), (0.01, 0.2), (1e-3, 0.02)
_APART_S = 1e-7  # between two messages of one direction
_FULL_SHARE = 0.01
_BEAT_S, _BEATS = 1.0, 6  # a DEALER gives up a connection whose other end has been stopped for so many beats


class _Kind(msgspec.Struct):
    kind: str = ""


_kind = msgspec.msgpack.Decoder(_Kind)


class Sockets:
    """All sockets of one simulation. `loss()`: what may happen to messages now."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, edges: Edges, loss: Callable[[], Loss]) -> None:
        self.loop, self.chance, self.edges, self.loss = loop, chance, edges, loss
        self.routers: dict[str, Router] = {}  # by endpoint
        self.connections: list[Connection] = []
        self._n_identities = 0

    def make_virtual(self, patch: Callable[[Any, str, Any], None]) -> None:
        """Let gateways and client libraries use them. `patch(object, name, value)` must undo itself after the simulation."""
        patch(zmq, "Context", lambda: SimpleNamespace(term=lambda: None, destroy=lambda linger: None))
        patch(zmq_options, "public_router", lambda context, endpoint: Router(self, endpoint))
        patch(zmq_options, "client", lambda context, server_key="": Dealer(self))
        patch(public_socket, "ZmqReader", Reader)
        patch(client_link, "ZmqReader", Reader)

    def process_died(self, life: SimulatedLife) -> None:
        """Close the sockets of a process."""
        self.routers = {endpoint: router for endpoint, router in self.routers.items() if router.life is not life}
        for one in [one for one in self.connections if life in (one.dealer.life, one.router.life)]:
            one.break_off()

    def cut(self) -> None:
        """Break a connection, if there is one."""
        if self.connections:
            self.chance.choice(self.connections).break_off()

    def new_identity(self) -> bytes:
        """What a ROUTER calls its next client."""
        self._n_identities += 1
        return b"\0" + struct.pack(">I", self._n_identities)


class Reader:
    """In the place of `ZmqReader`: runs in the process that makes it."""

    def __init__(
        self,
        socket: _Socket,
        on_message: Callable[[list[bytes]], None],
        on_writable: Callable[[], None],
        *,
        tells_addresses: bool = False,
    ) -> None:
        self._socket, self._on_message, self._on_writable = socket, on_message, on_writable
        self.context, self.sender_address, self._is_closed = copy_context(), "", False
        socket.reader = self

    def send(self, frames: list[bytes]) -> bool:
        """As `ZmqReader.send`."""
        return not self._is_closed and self._socket.send(frames)

    def close(self, linger_ms: int = 0) -> None:
        """As `ZmqReader.close`."""
        self._is_closed = True
        self._socket.close()

    def poll(self) -> None:
        """As `ZmqReader.poll`: nothing is missed."""

    def handle(self, frames: list[bytes]) -> None:
        """A message has come."""
        if not self._is_closed:
            with self._socket.edge("gets", frames):
                self._on_message(frames)

    def writable(self) -> None:
        """The socket can send again."""
        if not self._is_closed:
            self._on_writable()


class _Socket:
    """`life`: its process."""

    reader: Reader

    def __init__(self, sockets: Sockets) -> None:
        self.sockets, self.life, self.is_closed = sockets, PROCESS.get(), False

    def send(self, frames: list[bytes]) -> bool:
        """Returns False when the message cannot leave now."""
        raise NotImplementedError

    def close(self, linger: int = 0) -> None:
        """Close it."""
        self.is_closed = True

    def edge(self, verb: str, frames: list[bytes]) -> Any:
        """The edge at which a process gets or sends this message."""
        return self.sockets.edges.around(f"{verb} {_kind.decode(frames[-2]).kind}")

    def later(self, delay_s: tuple[float, float], call: Callable[..., None], *values: Any) -> None:
        """Call something in the process of this socket, a little later."""
        sockets = self.sockets
        sockets.loop.call_later(sockets.chance.uniform(*delay_s), call, *values, context=self.reader.context)

    def is_full(self) -> bool:
        """By chance; then the reader is told when it is not any more."""
        if self.sockets.chance.random() >= _FULL_SHARE:
            return False
        self.later(_FULL_S, self.reader.writable)
        return True


class Router(_Socket):
    """A bound ROUTER. `connections`: by the identities of the other ends."""

    def __init__(self, sockets: Sockets, endpoint: str) -> None:
        super().__init__(sockets)
        self.connections: dict[bytes, Connection] = {}
        self._endpoint = endpoint
        sockets.routers[endpoint] = self
        Path(endpoint.removeprefix("ipc://")).touch()  # clients look for the sockets of other gateways

    def send(self, frames: list[bytes]) -> bool:
        connection = self.connections.get(frames[0])
        if connection is None:
            return True  # nobody can receive it any more
        if self.is_full():
            return False
        with self.edge("sends", frames):
            connection.carry(frames[1:], connection.dealer)
        return True

    def close(self, linger: int = 0) -> None:
        super().close()
        if self.sockets.routers.get(self._endpoint) is self:
            del self.sockets.routers[self._endpoint]
        for connection in list(self.connections.values()):
            connection.break_off()


class _Monitor(_Socket):
    """Tells its reader of the connections of a DEALER."""

    def edge(self, verb: str, frames: list[bytes]) -> Any:
        return nullcontext()


class Dealer(_Socket):
    """A DEALER with at most one connection, which is made again until it is closed."""

    def __init__(self, sockets: Sockets) -> None:
        super().__init__(sockets)
        self.connection: Connection | None = None
        self._context = copy_context()
        self._endpoint, self._n_attempts = "", 0
        self._monitor = _Monitor(sockets)

    def get_monitor_socket(self, events: int) -> _Monitor:
        """As in pyzmq."""
        return self._monitor

    def disable_monitor(self) -> None:
        """As in pyzmq."""

    def connect(self, endpoint: str) -> None:
        """Connect, as soon as somebody is there, and again after each loss of the connection."""
        self._endpoint = endpoint
        self._try_soon()

    def disconnect(self, endpoint: str) -> None:
        """End the connection."""
        connection, self.connection = self.connection, None
        self._n_attempts += 1
        if connection is not None:
            connection.break_off()

    def send(self, frames: list[bytes]) -> bool:
        if self.connection is None or self.is_full():
            return False
        with self.edge("sends", frames):
            self.connection.carry(frames, self.connection.router)
        return True

    def close(self, linger: int = 0) -> None:
        super().close()
        if self.connection is not None:  # what has been sent arrives before the end
            self.sockets.loop.call_at(self.connection.last_s, self.connection.break_off, context=self._context)

    def lost(self, connection: Connection) -> None:
        """Let go of a connection that is broken, because this end has noticed it."""
        if self.connection is connection and not self.is_closed:
            self.connection = None
            self._tell(zmq.EVENT_DISCONNECTED)
            self._try_soon()

    def _try_soon(self) -> None:
        self._n_attempts += 1
        delay_s = self.sockets.chance.uniform(*_RETRY_S) if self._n_attempts > 1 else _DELAY_S[0]
        self.sockets.loop.call_later(delay_s, self._try, self._n_attempts, context=self._context)

    def _try(self, attempt: int) -> None:
        if attempt != self._n_attempts or self.is_closed:
            return
        router = self.sockets.routers.get(self._endpoint)
        if router is None or (router.life is not None and router.life.state is not LifeState.RUNNING):
            self._try_soon()
            return
        self.connection = Connection(self.sockets, self, router)
        self._tell(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.later(_DELAY_S, self.reader.writable)

    def _tell(self, event: int) -> None:
        self.sockets.loop.call_soon(self._monitor.reader.handle, [struct.pack("=hi", event, 0), b""], context=self._context)


class Connection:
    """Between one DEALER and one ROUTER. `last_s`: when the last message arrives that is on its way."""

    def __init__(self, sockets: Sockets, dealer: Dealer, router: Router) -> None:
        self._sockets, self.dealer, self.router = sockets, dealer, router
        self._identity = sockets.new_identity()
        self._last_s: dict[_Socket, float] = {dealer: 0.0, router: 0.0}
        self._is_broken = self._loses = False
        self._n_silent = 0
        router.connections[self._identity] = self
        sockets.connections.append(self)
        sockets.loop.call_later(_BEAT_S, self._beat, context=dealer.reader.context)

    @property
    def last_s(self) -> float:
        """When the last frames of both directions arrive, in virtual seconds; now if they have."""
        return max(*self._last_s.values(), self._sockets.loop.time())

    def carry(self, frames: list[bytes], target: _Socket) -> None:
        """Send a message to one of both ends."""
        loop, chance, loss = self._sockets.loop, self._sockets.chance, self._sockets.loss()
        if self._is_broken or chance.random() < loss.lost_share:
            return
        for _ in range(2 if chance.random() < loss.repeated_share else 1):
            at_s = max(loop.time() + chance.uniform(*_DELAY_S), self._last_s[target] + _APART_S)
            self._last_s[target] = at_s
            loop.call_at(at_s, self._arrive, frames, target, context=target.reader.context)

    def break_off(self) -> None:
        """The connection is lost. What is on its way may still arrive."""
        if not self._is_broken:
            self._is_broken, self._loses = True, self._sockets.chance.random() < 0.5
            self._sockets.connections.remove(self)
            self.router.connections.pop(self._identity, None)
            self.dealer.later(_NOTICE_S, self.dealer.lost, self)

    def _arrive(self, frames: list[bytes], target: _Socket) -> None:
        if not (self._is_broken and self._loses):
            target.reader.handle([self._identity, *frames] if target is self.router else frames)

    def _beat(self) -> None:
        if self._is_broken:
            return
        life = self.router.life
        self._n_silent = self._n_silent + 1 if life is not None and life.state is LifeState.PAUSED else 0
        if self._n_silent >= _BEATS:
            self.break_off()
        self._sockets.loop.call_later(_BEAT_S, self._beat, context=self.dealer.reader.context)
