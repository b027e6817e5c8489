"""An actor's mailbox: one inbox, and one outgoing link with credits to each peer. The Protocol and an in-memory implementation.

Delivery on a link is ordered, at most once, and bounded: a sender may have WINDOW_MESSAGES in flight and BACKLOG_MESSAGES more
waiting on its own side; then `send` raises MailboxFull. The receiver returns credits when it has *handled* messages, not when
they have arrived in a buffer. An actor receives messages in batches: all that have come since its last batch.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from messages.errors import MailboxFull, UnknownPeer, WireError
from messages.ids import role_of
from messages.routes import INTERNAL_KINDS, is_allowed
from messages.transport.credits import Arrivals, SendWindow
from messages.wire.codec import Codec, decode_envelope, encode_envelope
from messages.wire.envelope import ENVELOPE_VERSION, Envelope, Staleness, staleness
from messages.wire.message import NO_TRACE, Message

BACKLOG_MESSAGES = 16_384
_OPERATORS = "operator/"  # they connect once and never announce their exit: their incarnations are not remembered


EncodedMessage = tuple[bytes, bytes, bytes]  # message, arrays, trace id: what an envelope needs


@dataclass(frozen=True)
class Delivery:
    """One message as it came: its sender, which incarnation of it, and the trace that it belongs to, if any."""

    sender: str
    sender_incarnation: int
    message: Message
    trace: bytes = NO_TRACE


@dataclass(frozen=True)
class MailboxStatistics:
    """Counts since the mailbox was opened."""

    sent: int
    received: int
    refused: int  # frames that could not be decoded, and messages that the routes do not allow
    stale: int  # messages from or for another incarnation
    lost: int  # numbers missing on a link
    backlog: int  # messages waiting for credit now


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

    def statistics(self) -> MailboxStatistics:
        """Counts since the mailbox was opened."""
        ...

    async def close(self) -> None:
        """Close the sockets. Messages that cannot be sent within a fifth of a second are dropped."""
        ...


@dataclass
class Outbox:
    """The waiting messages of one link: encoded already, numbered only when they are sent."""

    peer: str
    incarnation: int
    window: SendWindow = field(default_factory=SendWindow)
    backlog: deque[EncodedMessage] = field(default_factory=deque)

    def push(self, frames: EncodedMessage) -> None:
        """Queue one message. Raises: MailboxFull."""
        if len(self.backlog) >= BACKLOG_MESSAGES:
            raise MailboxFull(f"{self.peer}: expected credit within {BACKLOG_MESSAGES} waiting messages, got none")
        self.backlog.append(frames)


class MailboxCore:
    """What both mailboxes share: it decodes, checks, counts and queues arriving frames, and knows which credits are due."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.name, self.incarnation = name, incarnation
        self.codec: Codec[Message] = Codec(INTERNAL_KINDS)
        self.counts: Counter[str] = Counter()
        self._queue: list[Delivery] = []
        self._waiter: asyncio.Future[None] | None = None
        self.arrivals = Arrivals()
        self._known_incarnation: dict[str, int] = {}

    def arrive(self, link: bytes, frames: list[bytes]) -> None:
        """Take the frames of one message from one link. A stale, malformed or forbidden message is counted and dropped."""
        try:
            if len(frames) != 3:
                raise WireError(f"frames: expected 3, got {len(frames)}")
            envelope = decode_envelope(frames[0])
            verdict = staleness(envelope, self.name, self.incarnation, self._known_incarnation.get(envelope.sender))
            if verdict is not Staleness.CURRENT:
                self.counts["stale"] += 1
                return
            message = self.codec.decode(frames[1], frames[2])
            if not is_allowed(type(message).__name__, role_of(envelope.sender), role_of(self.name)):
                raise WireError(f"route: {type(message).__name__} from {envelope.sender} is not for {self.name}")
        except WireError:
            self.counts["refused"] += 1
            return
        if not envelope.sender.startswith(_OPERATORS):
            self._known_incarnation[envelope.sender] = envelope.sender_incarnation
        self.counts["received"] += 1
        self.counts["lost"] += self.arrivals.note(link, envelope.sequence)
        self._queue.append(Delivery(envelope.sender, envelope.sender_incarnation, message, envelope.trace))
        self.wake()

    def wake(self) -> None:
        """Wake the actor that waits in `take`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Delivery]:
        """Wait until a message has come; returns all that have come."""
        while not self._queue:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        batch, self._queue = self._queue, []
        return batch

    def enclose(self, outbox: Outbox, frames: EncodedMessage) -> list[bytes]:
        """Give a message its number and its envelope, immediately before it is sent; returns its frames."""
        body, arrays, trace = frames
        number = outbox.window.take()
        envelope = Envelope(ENVELOPE_VERSION, self.name, self.incarnation, outbox.peer, outbox.incarnation, number, trace)
        self.counts["sent"] += 1
        return [encode_envelope(envelope), body, arrays]

    def statistics(self, backlog: int) -> MailboxStatistics:
        """Counts since the mailbox was opened."""
        c = self.counts
        return MailboxStatistics(c["sent"], c["received"], c["refused"], c["stale"], c["lost"], backlog)


class MemoryNetwork:
    """The mailboxes of one process by endpoint. A subclass may delay, drop or repeat what it carries."""

    def __init__(self) -> None:
        self.mailbox_by_endpoint: dict[str, MemoryMailbox] = {}

    def carry(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Carry one message, or one return of credits, between two endpoints: `arrive` hands it over. At once here."""
        arrive()


class MemoryMailbox(Mailbox):
    """A mailbox without sockets, with the encoding, the credits and the checks of `ZmqMailbox`. `send` delivers at once."""

    def __init__(self, network: MemoryNetwork, name: str, incarnation: int, endpoint: str | None = None) -> None:
        self.name, self.incarnation = name, incarnation
        self.endpoint = endpoint or f"memory://{name}.{incarnation}"
        self._network = network
        self._core = MailboxCore(name, incarnation)
        self._outbox: dict[str, Outbox] = {}
        self._endpoint_of: dict[str, str] = {}
        network.mailbox_by_endpoint[self.endpoint] = self

    def connect(self, name: str, incarnation: int, endpoint: str) -> None:
        known = self._outbox.get(name)
        if known is None or known.incarnation != incarnation:
            self._outbox[name] = Outbox(name, incarnation)
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

    def _pump(self, outbox: Outbox) -> None:
        target = self._network.mailbox_by_endpoint.get(self._endpoint_of[outbox.peer])
        while target is not None and outbox.backlog and outbox.window.is_open:
            frames = self._core.enclose(outbox, outbox.backlog.popleft())
            self._network.carry(self.endpoint, target.endpoint, partial(target._core.arrive, self.endpoint.encode(), frames))

    def _acknowledge(self, peer: str, number: int) -> None:
        outbox = self._outbox.get(peer)
        if outbox is not None:
            outbox.window.acknowledge(number)
            self._pump(outbox)

    async def wait_mail(self) -> list[Delivery]:
        for link, number in self._core.arrivals.credits_due():
            sender = self._network.mailbox_by_endpoint.get(link.decode())
            if sender is not None:
                self._network.carry(self.endpoint, sender.endpoint, partial(sender._acknowledge, self.name, number))
        return await self._core.take()

    def statistics(self) -> MailboxStatistics:
        return self._core.statistics(sum(len(outbox.backlog) for outbox in self._outbox.values()))

    async def close(self) -> None:
        self._network.mailbox_by_endpoint.pop(self.endpoint, None)


MailboxFactory = Callable[[str, int, str], Mailbox]
