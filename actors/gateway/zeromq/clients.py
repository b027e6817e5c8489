"""State of the ZeroMQ clients: their streams, their requests that are still being tokenised, and their unsent refusals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from actors.gateway.zeromq.stream import ZmqStream
from messages.wire.message import Message

_MAX_QUEUED = 2048  # refusals for one client, besides those in its ZeroMQ pipe


class ZmqClient:
    """One client: its streams by request id, and the event loop's time of its last message."""

    __slots__ = ("heard_s", "streams")

    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        self.streams: dict[str, ZmqStream] = {}


class PendingRequest:
    """A request that is still being tokenised. `identity`: the newest connection that has sent its Generate."""

    __slots__ = ("identity", "is_cancelled")

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.is_cancelled = False


class RefusalQueue:
    """Refusals for clients whose pipe is full. Lost refusals would leave calls waiting for their deadlines.

    At most 2048 refusals wait for one client; further ones are dropped. Streams keep their own unsent messages.

    Args:
        send: sends a message to a client; returns False when its pipe is full.
    """

    def __init__(self, send: Callable[[bytes, Message], bool]) -> None:
        self._send = send
        self._waiting: dict[bytes, deque[Message]] = {}  # by identity, in order

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def send(self, identity: bytes, refusal: Message) -> None:
        """Send a refusal now, or after those that wait for the same client."""
        waiting = self._waiting.get(identity)
        if waiting is None:
            if self._send(identity, refusal):
                return
            waiting = self._waiting[identity] = deque()
        if len(waiting) < _MAX_QUEUED:
            waiting.append(refusal)

    def flush(self) -> None:
        """Send as many of the waiting refusals as the pipes accept."""
        for identity, waiting in tuple(self._waiting.items()):
            while waiting and self._send(identity, waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._waiting[identity]
