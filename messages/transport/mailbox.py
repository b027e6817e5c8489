"""An actor's mailbox: one inbox, and one outgoing link with credits to each peer. The Protocol and an in-memory implementation.

Between two living incarnations, every message of a link is delivered exactly once and in order, whatever happens to their
connection: what is lost is noticed within a second and sent again (see `outbox.py`). Delivery is bounded: a sender may have
WINDOW_MESSAGES in flight and BACKLOG_MESSAGES more waiting on its own side; then `send` raises MailboxFull. The receiver
returns credits when it has *handled* messages, not when they have arrived in a buffer. An actor receives messages in batches:
all that have come since its last batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from messages.errors import UnknownPeer
from messages.transport.mailbox_core import Delivery, MailboxCore, MailboxStatistics
from messages.transport.outbox import BEAT_S, EncodedMessage, Outbox
from messages.wire.envelope import LinkAnswer
from messages.wire.message import NO_TRACE, Message


class Mailbox(Protocol):
    """How an actor sends and receives messages."""

    name: str
    incarnation: int
    endpoint: str

    def connect(self, name: str, incarnation: int, endpoint: str) -> None:
        """Open a link to a peer's present incarnation. A link to an older one is closed; its waiting messages are dropped."""
        ...

    def disconnect(self, name: str) -> None:
        """Close the link to a peer; messages that wait on it are dropped."""
        ...

    def is_connected(self, name: str) -> bool:
        """True if there is a link to this peer."""
        ...

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        """Hand a message to the link; never waits. `trace`: the trace id of the one request that it concerns.

        Raises: UnknownPeer without a link; MailboxFull when window and backlog are used up.
        """
        ...

    def send_all(self, names: list[str], message: Message) -> None:
        """Send the same message to several peers, encoded once. Raises: UnknownPeer; MailboxFull."""
        ...

    async def wait_mail(self) -> list[Delivery]:
        """Wait for messages; returns all that have come, at least one. The next call acknowledges this batch as handled."""
        ...

    def defer(self, senders: Collection[str]) -> None:
        """Acknowledge no messages of these senders, which are kept unhandled, until the next call of this method."""
        ...

    def statistics(self) -> MailboxStatistics:
        """Counts since the mailbox was opened."""
        ...

    async def close(self) -> None:
        """Close the sockets. Messages that cannot be sent within a fifth of a second are dropped."""
        ...


class MemoryNetwork:
    """The mailboxes of one process by endpoint. A subclass may delay, drop or repeat what it carries."""

    def __init__(self) -> None:
        self.mailbox_by_endpoint: dict[str, MemoryMailbox] = {}
        self.beat_s = BEAT_S  # tests shorten it

    def carry(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Carry one message, or one return of credits, between two endpoints: `arrive` hands it over. At once here."""
        arrive()


class MemoryMailbox(Mailbox):
    """A mailbox without sockets, with the encoding, the credits and the checks of `ZmqMailbox`. `send` delivers at once."""

    def __init__(self, network: MemoryNetwork, name: str, incarnation: int, endpoint: str | None = None) -> None:
        self.name, self.incarnation = name, incarnation
        self.endpoint = endpoint or f"memory://{name}.{incarnation}"
        self._route = f"{incarnation} {self.endpoint}".encode()  # of a connection, which ends with its process
        self._network = network
        self._core = MailboxCore(name, incarnation, self._reply)
        self._outbox: dict[str, Outbox] = {}
        self._endpoint_of: dict[str, str] = {}
        self._pumping: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        network.mailbox_by_endpoint[self.endpoint] = self

    def connect(self, name: str, incarnation: int, endpoint: str) -> None:
        known = self._outbox.get(name)
        if known is None or known.incarnation != incarnation:
            self._outbox[name] = self._core.open_outbox(name, incarnation)
            self._endpoint_of[name] = endpoint

    def disconnect(self, name: str) -> None:
        self._outbox.pop(name, None)

    def is_connected(self, name: str) -> bool:
        return name in self._outbox

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        self._send_all([name], (*self._core.codec.encode(message), trace))

    def send_all(self, names: list[str], message: Message) -> None:
        self._send_all(names, (*self._core.codec.encode(message), NO_TRACE))

    def _send_all(self, names: list[str], frames: EncodedMessage) -> None:
        for name in names:
            outbox = self._outbox.get(name)
            if outbox is None:
                raise UnknownPeer(f"{name}: expected a connected peer, got none")
            outbox.push(frames)
            self._pump(outbox)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._network.beat_s, self._beat)

    def _pump(self, outbox: Outbox) -> None:
        if outbox.peer in self._pumping:  # an answer to a message that is being carried: the loop below goes on
            return
        self._pumping.add(outbox.peer)
        while self._is_open(outbox) and (frames := outbox.next_message()) is not None:
            enclosed = self._core.enclose(outbox, frames)
            outbox.sent += 1
            self._core.counts["sent"] += 1
            self._carry(outbox, enclosed)
        self._pumping.discard(outbox.peer)

    def _is_open(self, outbox: Outbox) -> bool:
        return self._endpoint_of[outbox.peer] in self._network.mailbox_by_endpoint

    def _carry(self, outbox: Outbox, frames: list[bytes]) -> None:
        target = self._network.mailbox_by_endpoint[self._endpoint_of[outbox.peer]]
        self._network.carry(self.endpoint, target.endpoint, partial(target._core.arrive, self._route, frames))

    def _reply(self, route: bytes, answer: LinkAnswer) -> bool:
        incarnation, _, endpoint = route.decode().partition(" ")
        sender = self._network.mailbox_by_endpoint.get(endpoint)
        if sender is not None and sender.incarnation == int(incarnation):
            self._network.carry(self.endpoint, sender.endpoint, partial(sender._handle_answer, self.name, answer))
        return True

    def _handle_answer(self, peer: str, answer: LinkAnswer) -> None:
        outbox = self._outbox.get(peer)
        if outbox is not None:
            if outbox.handle_answer(answer):
                self._core.note_lost(outbox, is_reconnected=False)
            self._pump(outbox)

    def _beat(self) -> None:
        self._core.beat()
        for outbox in list(self._outbox.values()):
            self._pump(outbox)  # its endpoint may have come into being meanwhile
            if outbox.beat() and self._is_open(outbox):
                self._carry(outbox, self._core.question(outbox))
        self._timer = asyncio.get_running_loop().call_later(self._network.beat_s, self._beat)

    def defer(self, senders: Collection[str]) -> None:
        self._core.deferred = frozenset(senders)

    async def wait_mail(self) -> list[Delivery]:
        self._core.handled()
        return await self._core.take()

    def statistics(self) -> MailboxStatistics:
        return self._core.statistics(sum(outbox.n_waiting for outbox in self._outbox.values()))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._network.mailbox_by_endpoint.pop(self.endpoint, None)


MailboxFactory = Callable[[str, int, str], Mailbox]
