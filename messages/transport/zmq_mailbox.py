"""The mailbox over ZeroMQ: a ROUTER inbox, a DEALER to each peer, credits in the other direction of the same connection.

A message is [envelope, message, arrays] from DEALER to ROUTER; a credit is one frame of 8 bytes (little-endian number) from
ROUTER to DEALER.
"""

from __future__ import annotations

import asyncio
import os

import zmq

from messages.errors import UnknownPeer
from messages.transport import zmq_options
from messages.transport.mailbox import Delivery, EncodedMessage, Mailbox, MailboxCore, MailboxStatistics, Outbox
from messages.transport.zmq_reader import ZmqReader
from messages.wire.message import NO_TRACE, Message

_SWEEP_S = 1.0
_CREDIT_BYTES = 8


class _Link:
    """One outgoing connection: its waiting messages and its socket."""

    def __init__(self, core: MailboxCore, outbox: Outbox, socket: zmq.Socket) -> None:
        self.outbox = outbox
        self._core = core
        self._refused: list[bytes] | None = None  # a numbered message that the socket could not take
        self.reader = ZmqReader(socket, self._credit, self.pump)

    def pump(self) -> None:
        """Send what credit allows. A message that the socket refuses keeps its number and is sent first the next time."""
        outbox = self.outbox
        while outbox.backlog and (self._refused is not None or outbox.window.is_open):
            frames = self._refused or self._core.enclose(outbox, outbox.backlog[0])
            if not self.reader.send(frames):
                self._refused = frames
                return
            self._refused = None
            outbox.backlog.popleft()

    def _credit(self, frames: list[bytes]) -> None:
        if len(frames) == 1 and len(frames[0]) == _CREDIT_BYTES:
            self.outbox.window.acknowledge(int.from_bytes(frames[0], "little"))
            self.pump()


class ZmqMailbox(Mailbox):
    """A `Mailbox` over sockets. Lives on one event loop; not thread-safe."""

    def __init__(self, name: str, incarnation: int, endpoint: str) -> None:
        self.name, self.incarnation, self.endpoint = name, incarnation, endpoint
        self._context = zmq.Context()
        self._core = MailboxCore(name, incarnation)
        self._n_links = 0  # each link has its own identity: a ROUTER ignores a second one of the same name
        self._links: dict[str, _Link] = {}
        path = endpoint.removeprefix("ipc://")
        if path != endpoint and os.path.exists(path):
            os.unlink(path)  # a socket file of an incarnation that is proven dead
        self._inbox = ZmqReader(zmq_options.inbox(self._context, endpoint), self._arrive, lambda: None)
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_sockets)

    def connect(self, name: str, incarnation: int, endpoint: str) -> None:
        known = self._links.get(name)
        if known is not None and known.outbox.incarnation == incarnation:
            return
        self.disconnect(name)
        self._n_links += 1
        identity = f"{self.name}#{self.incarnation}#{self._n_links}".encode()
        socket = zmq_options.outgoing(self._context, endpoint, identity)
        self._links[name] = _Link(self._core, Outbox(name, incarnation), socket)

    def disconnect(self, name: str) -> None:
        link = self._links.pop(name, None)
        if link is not None:
            self._core.arrivals.forget(f"{name}#{link.outbox.incarnation}#".encode())
            link.reader.close()

    def is_connected(self, name: str) -> bool:
        return name in self._links

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        self._send_all([name], (*self._core.codec.encode(message), trace))

    def send_all(self, names: list[str], message: Message) -> None:
        self._send_all(names, (*self._core.codec.encode(message), NO_TRACE))

    def _send_all(self, names: list[str], frames: EncodedMessage) -> None:
        for name in names:
            link = self._links.get(name)
            if link is None:
                raise UnknownPeer(f"{name}: expected a connected peer, got none")
            link.outbox.push(frames)
            link.pump()

    async def wait_mail(self) -> list[Delivery]:
        for link, number in self._core.arrivals.credits_due():
            if not self._inbox.send([link, number.to_bytes(_CREDIT_BYTES, "little")]):
                self._core.arrivals.credit_unsent(link)
        return await self._core.take()

    def statistics(self) -> MailboxStatistics:
        return self._core.statistics(sum(len(link.outbox.backlog) for link in self._links.values()))

    async def close(self) -> None:
        self._sweep.cancel()
        for _ in range(100):  # let the last messages leave: at most a fifth of a second
            if not any(link.outbox.backlog for link in self._links.values()):
                break
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)  # the I/O thread writes what the pipe has taken
        for link in self._links.values():
            link.reader.close()
        self._inbox.close()
        await asyncio.get_running_loop().run_in_executor(None, self._context.term)

    def _arrive(self, frames: list[bytes]) -> None:
        self._core.arrive(frames[0], frames[1:])

    def _sweep_sockets(self) -> None:
        """Check all sockets once a second, so that a lost wake-up delays a message but never loses it."""
        self._inbox.check()
        for link in self._links.values():
            link.reader.check()
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_sockets)
