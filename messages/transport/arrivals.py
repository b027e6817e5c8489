"""The receiver's side of the links of one inbox: takes messages in the order of their numbers, says what to answer. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from messages.ids import is_actor_name
from messages.transport.outbox import WINDOW_MESSAGES
from messages.wire.envelope import Envelope, LinkAnswer

MAX_OPERATORS = 1024
OPERATORS = "operator/"  # they connect once and never announce their exit
_CREDIT_EVERY = WINDOW_MESSAGES // 4
_MOST_UNHANDLED = 2 * WINDOW_MESSAGES  # of one link


class ArrivalKind(Enum):
    """What a number says about its message."""

    NEXT = "next"  # take it
    REPEATED = "repeated"  # it has been taken before
    EARLY = "early"  # messages before it are missing: they are sent again, and so is this one
    OLD_LINK = "old_link"  # its sender has closed that link
    BEYOND_CREDIT = "beyond_credit"  # its sender has ignored its credit; if it follows the protocol, it sends it again


@dataclass(slots=True)
class _IncomingLink:
    """The present link of one sender."""

    incarnation: int
    link: int
    route: bytes  # of the connection over which it was heard last
    received: int = 0
    handled: int = 0
    credited: int = 0  # as told in the last answer
    is_missing: bool = False  # a missing message was asked for, and has not come
    heard: int = 0  # when its last message came, counted in messages of all links

    def answer(self) -> LinkAnswer:
        self.credited = self.handled
        return LinkAnswer(self.link, self.handled, self.received + 1 if self.is_missing else 0)


class Arrivals:
    """The links by the names of their senders. The names of actors are few; those of operators' commands are bounded. A sender
    with any other name has no link: its messages are dropped.
    """

    def __init__(self) -> None:
        self._links: dict[str, _IncomingLink] = {}
        self._n_heard = 0

    def __len__(self) -> int:
        return len(self._links)

    def incarnation_of(self, sender: str) -> int | None:
        """The newest incarnation that has sent a message; None for an unknown sender, or an operator's command."""
        link = self._links.get(sender)
        return None if link is None or sender.startswith(OPERATORS) else link.incarnation

    def note(self, envelope: Envelope, route: bytes) -> ArrivalKind:
        """A message has come over the connection `route`, from an incarnation that is not old."""
        link = self._link_of(envelope, route)
        if link is None:
            return ArrivalKind.OLD_LINK
        if link.received - link.handled > _MOST_UNHANDLED:
            return ArrivalKind.BEYOND_CREDIT
        missing = envelope.sequence - link.received - 1
        if missing == 0:
            link.received += 1
            link.is_missing = False
            return ArrivalKind.NEXT
        return ArrivalKind.EARLY if missing > 0 else ArrivalKind.REPEATED

    def ask_again(self, envelope: Envelope) -> tuple[bytes, LinkAnswer] | None:
        """After an early message: the answer that asks for the missing one, once for each gap; None if it was asked for."""
        link = self._links[envelope.sender]
        if link.is_missing:
            return None
        link.is_missing = True
        return link.route, link.answer()

    def question(self, envelope: Envelope, route: bytes) -> tuple[bytes, LinkAnswer] | None:
        """A sender asks what has come; its last message has the number `envelope.sequence`. Returns the answer, if any."""
        link = self._link_of(envelope, route)
        if link is None:
            return None
        link.is_missing = envelope.sequence > link.received
        return link.route, link.answer()

    def handled(self, deferred: Collection[str]) -> list[tuple[bytes, LinkAnswer]]:
        """Note that all that has come was handled, except what the senders in `deferred` sent. Returns the answers that must be
        sent at once, because their senders may soon be out of credit."""
        due = []
        for sender, link in self._links.items():
            if sender not in deferred:
                link.handled = link.received
                if link.handled - link.credited >= _CREDIT_EVERY:
                    due.append((link.route, link.answer()))
        return due

    def beat(self) -> list[tuple[bytes, LinkAnswer]]:
        """The answers of links on which something was handled since their last one."""
        return [(link.route, link.answer()) for link in self._links.values() if link.handled > link.credited]

    def unsent(self, route: bytes) -> None:
        """The answer over this connection could not be sent. It is due again at the next beat."""
        for link in self._links.values():
            if link.route == route:
                link.credited = 0

    def _link_of(self, envelope: Envelope, route: bytes) -> _IncomingLink | None:
        """The link of an envelope, which is noted if it is new; None if it is older than the known one, or nobody's."""
        sender, number = envelope.sender, (envelope.sender_incarnation, envelope.link)
        link = self._links.get(sender)
        if link is None or number != (link.incarnation, link.link):
            if link is not None and number < (link.incarnation, link.link) and not sender.startswith(OPERATORS):
                return None
            if link is None and not is_actor_name(sender):
                return None
            link = self._add(sender, _IncomingLink(*number, route))
        self._n_heard += 1
        link.heard, link.route = self._n_heard, route
        return link

    def _add(self, sender: str, link: _IncomingLink) -> _IncomingLink:
        """Note a new link. At `MAX_OPERATORS`, forget the half of the operators' commands that was heard longest ago."""
        operators = [name for name in self._links if name.startswith(OPERATORS)] if sender.startswith(OPERATORS) else []
        if len(operators) >= MAX_OPERATORS:
            for name in sorted(operators, key=lambda name: self._links[name].heard)[: MAX_OPERATORS // 2]:
                del self._links[name]
        self._links[sender] = link
        return link
