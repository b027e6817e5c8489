"""The credit of links: how much may be on its way, on the sender's side and on the receiver's. Pure."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_MESSAGES = 1024
MAX_LINKS = 1024
_CREDIT_EVERY = WINDOW_MESSAGES // 4


class SendWindow:
    """Sender's side of the credit of one link: numbers mail and says when it may go. Pure."""

    def __init__(self) -> None:
        self._next = 1
        self._acknowledged = 0

    @property
    def is_open(self) -> bool:
        """May one more message leave now?"""
        return self._next - 1 - self._acknowledged < WINDOW_MESSAGES

    def take(self) -> int:
        """The number of the next message."""
        assert self.is_open
        number, self._next = self._next, self._next + 1
        return number

    def acknowledge(self, up_to: int) -> None:
        """A credit came back; an absurd one (beyond what was sent) is ignored."""
        if self._acknowledged < up_to < self._next:
            self._acknowledged = up_to


@dataclass
class ReceiveWindow:
    """Receiver's side of the credit of one link. Pure."""

    received: int = 0
    credited: int = 0
    heard: int = 0  # when mail came last, counted in messages of all links

    def gap_before(self, sequence: int) -> int:
        """Note an arrival; returns how many messages are missing before it (0 in peace)."""
        missing = sequence - self.received - 1
        self.received = max(self.received, sequence)
        return max(missing, 0)

    def credit_due(self) -> int | None:
        """After everything received has been handled: the number to acknowledge, or None while it is not worth a frame."""
        if self.received - self.credited < _CREDIT_EVERY:
            return None
        self.credited = self.received
        return self.received


class Arrivals:
    """The receiver's side of all links of one inbox, by the links' identities."""

    def __init__(self) -> None:
        self._links: dict[bytes, ReceiveWindow] = {}
        self._n_heard = 0

    def __len__(self) -> int:
        return len(self._links)

    def note(self, link: bytes, sequence: int) -> int:
        """Mail number `sequence` came over a link; returns how many messages are missing before it."""
        window = self._links.get(link) or self._new(link)
        self._n_heard += 1
        window.heard = self._n_heard
        return window.gap_before(sequence)

    def credits_due(self) -> list[tuple[bytes, int]]:
        """(link, number) for each link whose handled mail is worth a credit frame now."""
        due = ((link, window.credit_due()) for link, window in self._links.items())
        return [(link, number) for link, number in due if number is not None]

    def credit_unsent(self, link: bytes) -> None:
        """The credit could not leave: it is due again."""
        self._links[link].credited = 0

    def forget(self, prefix: bytes) -> None:
        """The sender behind these links is gone."""
        self._links = {link: window for link, window in self._links.items() if not link.startswith(prefix)}

    def _new(self, link: bytes) -> ReceiveWindow:
        """Nobody tells of the end of an operator's link, and late mail brings dead ones back: the most silent ones go."""
        if len(self._links) >= MAX_LINKS:
            newest = sorted(self._links, key=lambda known: self._links[known].heard)[MAX_LINKS // 2 :]
            self._links = {known: self._links[known] for known in newest}
        window = self._links[link] = ReceiveWindow()
        return window
