"""The mailbox over ZeroMQ: a ROUTER inbox, a DEALER to each peer, answers in the other direction of the same connection.

A message is [envelope, message, arrays] from DEALER to ROUTER; an answer is one frame from ROUTER to DEALER. The ROUTER gives
each connection an identity of its own. With identities chosen by the DEALERs it would ignore a new connection as long as it
believes in the old one: for ever, if one side was paused while the other one connected again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress

import zmq

from messages.errors import UnknownPeer, WireError
from messages.transport import zmq_options
from messages.transport.mailbox import Mailbox
from messages.transport.mailbox_core import Delivery, MailboxCore, MailboxStatistics
from messages.transport.outbox import BEAT_S, EncodedMessage, Outbox
from messages.transport.zmq_reader import ZmqReader
from messages.wire.codec import decode_answer, encode_answer
from messages.wire.envelope import LinkAnswer
from messages.wire.message import NO_TRACE, Message


class _OutgoingLink:
    """One outgoing link: its messages and its socket. `open_socket` makes a new connection to the peer."""

    def __init__(self, core: MailboxCore, outbox: Outbox, open_socket: Callable[[], zmq.Socket]) -> None:
        self.outbox = outbox
        self._core, self._open_socket = core, open_socket
        self.reader = ZmqReader(open_socket(), self._handle_answer, self.pump)

    def pump(self) -> None:
        """Send what credit and the socket allow."""
        outbox, core = self.outbox, self._core
        while (frames := outbox.next_message()) is not None and self.reader.send(core.enclose(outbox, frames)):
            outbox.sent += 1
            core.counts["sent"] += 1

    def beat(self) -> None:
        """Ask the peer what it has if it is silent; try a new connection if it stays silent."""
        self.reader.poll()
        if self.outbox.beat():
            self.reader.send(self._core.question(self.outbox))
        if self.outbox.must_reconnect():
            self._core.note_lost(self.outbox, is_reconnected=True)
            try:
                socket = self._open_socket()
            except zmq.ZMQError:  # no descriptor is left
                return
            self.reader.close()
            self.reader = ZmqReader(socket, self._handle_answer, self.pump)

    def _handle_answer(self, frames: list[bytes]) -> None:
        try:
            if self.outbox.handle_answer(decode_answer(b"".join(frames))):
                self._core.note_lost(self.outbox, is_reconnected=False)
        except WireError:
            self._core.counts["refused"] += 1
        self.pump()


class ZmqMailbox(Mailbox):
    """A `Mailbox` over sockets. Lives on one event loop; not thread-safe."""

    def __init__(self, name: str, incarnation: int, endpoint: str) -> None:
        self.name, self.incarnation, self.endpoint = name, incarnation, endpoint
        self._context = zmq.Context()
        self._core = MailboxCore(name, incarnation, self._reply)
        self._links: dict[str, _OutgoingLink] = {}
        self._path = endpoint.removeprefix("ipc://") if endpoint.startswith("ipc://") else ""
        if self._path and os.path.exists(self._path):
            os.unlink(self._path)  # a socket file of an incarnation that is proven dead
        self._socket = zmq_options.inbox(self._context, endpoint)
        self._inbox = ZmqReader(self._socket, self._arrive, lambda: None)
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def connect(self, name: str, incarnation: int, endpoint: str) -> None:
        known = self._links.get(name)
        if known is not None and known.outbox.incarnation == incarnation:
            return
        self.disconnect(name)
        outbox = self._core.open_outbox(name, incarnation)
        self._links[name] = _OutgoingLink(self._core, outbox, lambda: zmq_options.outgoing(self._context, endpoint, b""))

    def disconnect(self, name: str) -> None:
        link = self._links.pop(name, None)
        if link is not None:
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
        self._core.handled()
        return await self._core.take()

    def defer(self, senders: Collection[str]) -> None:
        self._core.deferred = frozenset(senders)

    def statistics(self) -> MailboxStatistics:
        return self._core.statistics(sum(link.outbox.n_waiting for link in self._links.values()))

    async def close(self) -> None:
        self._timer.cancel()
        for _ in range(100):  # let the last messages leave: at most a fifth of a second
            if not any(link.outbox.n_waiting for link in self._links.values()):
                break
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)  # the I/O thread writes what the pipe has taken
        for link in self._links.values():
            link.reader.close()
        self._inbox.close()
        await asyncio.get_running_loop().run_in_executor(None, self._context.term)

    def _arrive(self, frames: list[bytes]) -> None:
        self._core.arrive(frames[0], frames[1:])

    def _reply(self, route: bytes, answer: LinkAnswer) -> bool:
        return self._inbox.send([route, encode_answer(answer)])

    def _beat(self) -> None:
        """Also check all sockets, so that a lost wake-up delays a message but never loses it."""
        self._inbox.poll()
        self._core.beat()
        for link in self._links.values():
            link.beat()
        if self._path and not os.path.exists(self._path):
            self._bind_again()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _bind_again(self) -> None:
        """Somebody has removed the socket file: make it again, so that processes that are started later find this inbox."""
        with suppress(zmq.ZMQError):  # its directory has gone too, or no descriptor is left: the next beat tries again
            self._socket.bind(self.endpoint)
