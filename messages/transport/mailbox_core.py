"""What the mailbox over ZeroMQ and the one in memory share: envelopes, checks, counts, arrived mail and answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from messages.errors import WireError
from messages.ids import SUPERVISOR, role_of
from messages.routes import INTERNAL_KINDS, is_allowed
from messages.transport.arrivals import OPERATORS, ArrivalKind, Arrivals
from messages.transport.outbox import EncodedMessage, Outbox
from messages.wire.codec import Codec, decode_envelope, encode_envelope
from messages.wire.envelope import ENVELOPE_VERSION, Envelope, LinkAnswer, Staleness, staleness
from messages.wire.message import NO_TRACE, Message

# msgspec keeps what it learns of each class: 10 ms, which a spare process spends before it becomes an actor
Codec[Message](INTERNAL_KINDS)


class Delivery(msgspec.Struct, frozen=True):
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
    lost: int  # gaps in the numbers of a link; the missing messages were asked for again
    backlog: int  # messages waiting for credit now
    links_lost: int  # times that messages to a peer were sent again, because they or their answers were lost
    sent_again: int  # these messages


class MailboxCore:
    """What both mailboxes share: it decodes, checks, counts and queues arriving frames, and knows what must be answered.

    `reply(route, answer)` sends an answer over the connection `route`; it returns False if that is impossible now.
    """

    def __init__(self, name: str, incarnation: int, reply: Callable[[bytes, LinkAnswer], bool]) -> None:
        self.name, self.incarnation = name, incarnation
        self.codec: Codec[Message] = Codec(INTERNAL_KINDS)
        self.counts: Counter[str] = Counter()
        self.arrivals = Arrivals()
        self.deferred: frozenset[str] = frozenset()
        self._reply = reply
        self._queue: list[Delivery] = []
        self._waiter: asyncio.Future[None] | None = None
        self._n_links = 0

    def open_outbox(self, peer: str, incarnation: int) -> Outbox:
        """A new link to a peer."""
        self._n_links += 1
        return Outbox(peer, incarnation, self._n_links)

    def arrive(self, route: bytes, frames: list[bytes]) -> None:
        """Take the frames of one message. A stale, malformed or forbidden one is counted and dropped; gaps are asked for."""
        try:
            if len(frames) != 3:
                raise WireError(f"frames: expected 3, got {len(frames)}")
            envelope = decode_envelope(frames[0])
            newest = self.arrivals.incarnation_of(envelope.sender)
            if staleness(envelope, self.name, self.incarnation, newest) is not Staleness.CURRENT:
                self.counts["stale"] += 1
            elif not frames[1]:
                self._answer(self.arrivals.question(envelope, route))
            elif self._is_next(envelope, route):
                message = self.codec.decode(frames[1], frames[2])
                if not is_allowed(type(message).__name__, role_of(envelope.sender), role_of(self.name)):
                    raise WireError(f"route: {type(message).__name__} from {envelope.sender} is not for {self.name}")
                self.counts["received"] += 1
                self._queue.append(Delivery(envelope.sender, envelope.sender_incarnation, message, envelope.trace))
                self.wake()
        except WireError:
            self.counts["refused"] += 1

    def _is_next(self, envelope: Envelope, route: bytes) -> bool:
        """True if this is the next message of its link; otherwise it is dropped."""
        arrival = self.arrivals.note(envelope, route)
        if arrival is ArrivalKind.EARLY:
            self._answer(self._asked_again(envelope))
        elif arrival in (ArrivalKind.OLD_LINK, ArrivalKind.BEYOND_CREDIT):
            self.counts["stale"] += 1
        return arrival is ArrivalKind.NEXT

    def _asked_again(self, envelope: Envelope) -> tuple[bytes, LinkAnswer] | None:
        """After a gap: the answer that asks for the missing message, once."""
        due = self.arrivals.ask_again(envelope)
        if due is not None:
            self._tell_lost(envelope.sender, "from", messages_missing=envelope.sequence - due[1].wanted)
        return due

    def _answer(self, due: tuple[bytes, LinkAnswer] | None) -> None:
        if due is not None:
            self.counts["lost"] += due[1].wanted > 0
            if not self._reply(*due):
                self.arrivals.unsent(due[0])

    def note_lost(self, outbox: Outbox, *, is_reconnected: bool) -> None:
        """The link to a peer has lost messages or answers: the last `outbox.n_again` messages are sent again, over a new
        connection if `is_reconnected`. An operator's command that has ended answers nothing more, and a child that starts
        answers its supervisor late, because it may import for seconds: nothing is lost then."""
        if outbox.peer.startswith(OPERATORS) or (self.name == SUPERVISOR and not outbox.has_heard):
            return
        self.counts["links_lost"] += 1
        self.counts["sent_again"] += outbox.n_again
        self._tell_lost(outbox.peer, "to", messages_sent_again=outbox.n_again, new_connection=is_reconnected)

    def _tell_lost(self, peer: str, direction: str, **more: object) -> None:
        """Log that a link has lost messages. An operator's command does not: it prints its answer alone."""
        if not self.name.startswith(OPERATORS):
            log = structlog.get_logger().bind(actor=self.name, incarnation=self.incarnation)
            log.warning("link lost", peer=peer, direction=direction, **more)

    def handled(self) -> None:
        """The batch of the last `take` is handled: return credits."""
        for due in self.arrivals.handled(self.deferred):
            self._answer(due)

    def beat(self) -> None:
        """Acknowledge what was handled since the last answers. Call it every `BEAT_S` seconds."""
        for due in self.arrivals.beat():
            self._answer(due)

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
        """The frames of message number `sent` + 1, in its envelope."""
        body, arrays, trace = frames
        return [self._envelope(outbox, outbox.sent + 1, trace), body, arrays]

    def question(self, outbox: Outbox) -> list[bytes]:
        """The frames that ask a receiver what it has."""
        return [self._envelope(outbox, outbox.sent, NO_TRACE), b"", b""]

    def _envelope(self, outbox: Outbox, number: int, trace: bytes) -> bytes:
        peer, peer_incarnation, link = outbox.peer, outbox.incarnation, outbox.link
        return encode_envelope(
            Envelope(ENVELOPE_VERSION, self.name, self.incarnation, peer, peer_incarnation, number, link, trace)
        )

    def statistics(self, backlog: int) -> MailboxStatistics:
        """Counts since the mailbox was opened."""
        c = self.counts
        counts = (c["sent"], c["received"], c["refused"], c["stale"], c["lost"], backlog, c["links_lost"], c["sent_again"])
        return MailboxStatistics(*counts)
