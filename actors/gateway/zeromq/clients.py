"""Who is connected to the ZeroMQ front, who has asked for a request that is not known yet, and whose refusals wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from actors.gateway.zeromq.stream import ZmqStream
from messages.wire.message import Message

_MOST_LATE = 2048  # refusals for one client, behind those in its pipe


class Client:
    """One identity: its streams by request id, and when it was last heard."""

    __slots__ = ("heard_s", "streams")

    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        self.streams: dict[str, ZmqStream] = {}


class Asker:
    """Who wants a request that is still being tokenised: the newest connection that sent its Generate."""

    __slots__ = ("identity", "is_cancelled")

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.is_cancelled = False


class LateRefusals:
    """Refusals for clients whose pipe is full: a call whose answer is lost would wait for its deadline. Streams keep their own.

    A client that lets too many wait loses the newest ones.
    """

    def __init__(self, send: Callable[[bytes, Message], bool]) -> None:
        self._send = send
        self._waiting: dict[bytes, deque[Message]] = {}  # by identity, in order

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def say(self, identity: bytes, refusal: Message) -> None:
        """Now, or behind those that wait."""
        waiting = self._waiting.get(identity)
        if waiting is None:
            if self._send(identity, refusal):
                return
            waiting = self._waiting[identity] = deque()
        if len(waiting) < _MOST_LATE:
            waiting.append(refusal)

    def say_all(self) -> None:
        """As many as their pipes take."""
        for identity, waiting in tuple(self._waiting.items()):
            while waiting and self._send(identity, waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._waiting[identity]
