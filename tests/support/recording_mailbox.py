"""A mailbox without a network: it records what an actor sends."""

from __future__ import annotations

from messages.errors import MailboxFull
from messages.transport.mailbox_core import MailboxStatistics
from messages.wire.message import NO_TRACE, Message


class RecordingMailbox:
    """As much of a `Mailbox` as an actor needs that is driven by hand: its `run` is never called."""

    def __init__(self, *_: object) -> None:
        self.endpoint = "memory://recording"
        self.sent: list[tuple[str, Message]] = []  # (recipient, message)
        self.is_full = False  # refuse everything

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        """Record a message. Raises: MailboxFull."""
        if self.is_full:
            raise MailboxFull(name)
        self.sent.append((name, message))

    def statistics(self) -> MailboxStatistics:
        """What was sent; nothing comes, and nothing is lost."""
        return MailboxStatistics(
            sent=len(self.sent), received=0, refused=0, stale=0, lost=0, backlog=0, links_lost=0, sent_again=0
        )
