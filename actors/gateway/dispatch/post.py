"""What the request manager and its parts need from their actor: messages, peers, clocks and timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from messages.errors import MailboxFull, UnknownPeer
from messages.wire.message import NO_TRACE, Message


class Timer(Protocol):
    """What `loop.call_later` returns."""

    def cancel(self) -> None:
        """Cancel the callback."""
        ...


class Post(Protocol):
    """What the request manager and its parts need from their actor: messages, peers, clocks and timers."""

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        """Send a message; `trace` is the trace id of the one request that it concerns. Raises: UnknownPeer, MailboxFull."""
        ...

    def living(self, role: str) -> list[str]:
        """Names of the living peers of a role."""
        ...

    def incarnation_of(self, name: str) -> int:
        """The incarnation of a living peer; -1 if it is not living."""
        ...

    def now_s(self) -> float:
        """The monotonic clock."""
        ...

    def wall_s(self) -> float:
        """Unix time."""
        ...

    def later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` after `delay_s`."""
        ...


def send_now(post: Post, name: str, message: Message, trace: bytes = NO_TRACE) -> bool:
    """As `Post.send`; returns False when the message cannot be sent now."""
    try:
        post.send(name, message, trace)
    except (UnknownPeer, MailboxFull):
        return False
    return True
