"""Credit-based flow control of links: how many messages may be in flight, on the sender's and the receiver's side. Pure."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_MESSAGES = 1024
MAX_LINKS = 1024
_CREDIT_EVERY = WINDOW_MESSAGES // 4


class SendWindow:
    """The sender's side of one link: numbers messages and says whether one more may be sent."""

    def __init__(self) -> None:
        self._next = 1
        self._acknowledged = 0

    @property
    def is_open(self) -> bool:
        """True if one more message may be sent now."""
        return self._next - 1 - self._acknowledged < WINDOW_MESSAGES

    def take(self) -> int:
        """The sequence number for the next message. Only while `is_open`."""
        assert self.is_open
        number, self._next = self._next, self._next + 1
        return number

    def acknowledge(self, up_to: int) -> None:
        """The receiver has handled all messages up to this number. A number beyond what was sent is ignored."""
        if self._acknowledged < up_to < self._next:
            self._acknowledged = up_to


@dataclass
class ReceiveWindow:
    """The receiver's side of one link."""

    received: int = 0
    credited: int = 0
    heard: int = 0  # when the last message came, counted in messages of all links

    def gap_before(self, sequence: int) -> int:
        """Note an arrival; returns how many messages were lost before it (normally 0)."""
        missing = sequence - self.received - 1
        self.received = max(self.received, sequence)
        return max(missing, 0)

    def credit_due(self) -> int | None:
        """Once every received message is handled: the number to acknowledge, or None if too few have come for a frame."""
        if self.received - self.credited < _CREDIT_EVERY:
            return None
        self.credited = self.received
        return self.received


class Arrivals:
    """The receiver's side of all links of one inbox, by the links' ZeroMQ identities."""

    def __init__(self) -> None:
        self._links: dict[bytes, ReceiveWindow] = {}
        self._n_heard = 0

    def __len__(self) -> int:
        return len(self._links)

    def note(self, link: bytes, sequence: int) -> int:
        """Message number `sequence` came over a link; returns how many messages were lost before it."""
        window = self._links.get(link) or self._new(link)
        self._n_heard += 1
        window.heard = self._n_heard
        return window.gap_before(sequence)

    def credits_due(self) -> list[tuple[bytes, int]]:
        """(link, number to acknowledge) for each link that is due a credit frame now."""
        due = ((link, window.credit_due()) for link, window in self._links.items())
        return [(link, number) for link, number in due if number is not None]

    def credit_unsent(self, link: bytes) -> None:
        """The credit frame of this link could not be sent. It is due again."""
        self._links[link].credited = 0

    def forget(self, prefix: bytes) -> None:
        """Forget the links whose identity begins with `prefix`: their sender is gone."""
        self._links = {link: window for link, window in self._links.items() if not link.startswith(prefix)}

    def _new(self, link: bytes) -> ReceiveWindow:
        """Remember a link. At `MAX_LINKS`, evict the half that has been silent longest: the end of an operator's link is never
        announced, and late messages can add links of dead senders again."""
        if len(self._links) >= MAX_LINKS:
            newest = sorted(self._links, key=lambda known: self._links[known].heard)[MAX_LINKS // 2 :]
            self._links = {known: self._links[known] for known in newest}
        window = self._links[link] = ReceiveWindow()
        return window
