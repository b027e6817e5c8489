"""State of the ZeroMQ clients: their streams, their requests that are still being tokenised, and their unsent refusals."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from actors.gateway.requests.refusals import Refusal
from actors.gateway.zeromq.forwarded_stream import ForwardedStream
from actors.gateway.zeromq.stream import ZmqStream
from messages.public import Failed
from messages.wire.message import MAX_SHORT_CHARACTERS, Message

_CLIENT_SILENCE_S = 30.0  # a client with open streams answers each Alive; one that is silent for this time has left
_DETAIL_CHARACTERS = 2_000  # longest text of a refusal, because thousands of them may wait for one client
_MAX_QUEUED = 2048  # refusals for one client, besides those in its ZeroMQ pipe


AnyStream = ZmqStream | ForwardedStream


class ZmqClient:
    """One client: its streams by request id, and the event loop's time of its last message."""

    __slots__ = ("heard_s", "streams")

    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        self.streams: dict[str, AnyStream] = {}


class ZmqClients:
    """All clients with open streams. A client that is not heard for 30 s has left, although its connection may be there.

    Args:
        alive: the message that is sent to each of them at every beat, and to a new one at once.
        send: sends a message to a client; returns False when its pipe is full.
    """

    def __init__(self, alive: Message, send: Callable[[bytes, Message], bool]) -> None:
        self._alive, self._send = alive, send
        self._clients: dict[bytes, ZmqClient] = {}
        self._owner: dict[str, bytes] = {}  # by request id: the identity of its present client
        self._loop = asyncio.get_running_loop()

    def heard(self, identity: bytes) -> ZmqClient | None:
        """The client with this identity, which has just sent something; None if it has no stream."""
        client = self._clients.get(identity)
        if client is not None:
            client.heard_s = self._loop.time()
        return client

    def add(self, identity: bytes, request_id: str, stream: AnyStream) -> None:
        """Make a connection the client of a request, in place of an older one."""
        known = self._owner.get(request_id)
        if known is not None:
            self.remove(known, request_id, is_gone=False)
        client = self._clients.get(identity)
        if client is None:
            client = self._clients[identity] = ZmqClient(self._loop.time())
            self._send(identity, self._alive)
        stream.on_done = lambda: self.remove(identity, request_id, is_gone=True)
        client.streams[request_id] = stream
        self._owner[request_id] = identity

    def remove(self, identity: bytes, request_id: str, *, is_gone: bool) -> None:
        """Close a stream. `is_gone`: its client has left or has everything."""
        client = self._clients.get(identity)
        stream = client.streams.pop(request_id, None) if client is not None else None
        self._owner.pop(request_id, None)
        if client is not None and not client.streams:
            del self._clients[identity]
        if stream is not None:
            stream.close()
            if is_gone:
                stream.left()

    def pump(self) -> None:
        """Continue with blocked streams, because the socket can send again."""
        for client in tuple(self._clients.values()):
            for stream in tuple(client.streams.values()):
                if stream.is_blocked:
                    stream.pump()

    def beat(self) -> None:
        """Tell all clients that the gateway is alive, and close the streams of those that have left."""
        now_s = self._loop.time()
        for identity, client in tuple(self._clients.items()):
            if now_s - client.heard_s > _CLIENT_SILENCE_S:
                for request_id in tuple(client.streams):
                    self.remove(identity, request_id, is_gone=True)
                continue
            self._send(identity, self._alive)


class PendingRequest:
    """A request that is still being tokenised. `identity`: the newest connection that has asked for it."""

    __slots__ = ("identity", "is_cancelled")

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.is_cancelled = False


def failed_of(request: str, refusal: Refusal) -> Failed:
    """The message that refuses the request or call with this id."""
    return Failed(
        request=request[:MAX_SHORT_CHARACTERS],
        code=refusal.code,
        fine_code=refusal.fine_code,
        field=refusal.field[:MAX_SHORT_CHARACTERS],
        detail=refusal.detail[:_DETAIL_CHARACTERS],
        retry_after_s=refusal.retry_after_s,
    )


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
