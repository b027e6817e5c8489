"""The client's connection to a gateway's front: one DEALER, said again whatever is open after each new connection.

A gateway that dies takes its connection along; ZeroMQ connects again as soon as the next life has bound the same endpoint. The
socket's monitor tells of it, and everything open is said once more. Beats that stop, or that come from another life, do the
same: the monitor sees connections, the beats see streams.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, Protocol, get_args

import zmq
from zmq.utils.monitor import parse_monitor_message

from messages import public
from messages.errors import ConfigError, WireError
from messages.transport import zmq_options
from messages.transport.zmq_reader import ZmqReader
from messages.wire.codec import Codec
from messages.wire.message import Message

SILENCE_S = 2.0
_LINGER_MS = 100  # the last confirmation leaves, if somebody is there
_KINDS = (*get_args(public.ClientMessage), *get_args(public.FrontMessage))


class OpenCall(Protocol):
    """Something that waits for answers of the front."""

    def words(self) -> Message:
        """What to say (again)."""
        ...

    def take(self, message: Any) -> None:
        """A message about it came."""
        ...


class ClientLink:
    """Lives on one event loop. `on_beat` is called with each Alive, to confirm what was received. Raises: ConfigError."""

    def __init__(self, endpoint: str, on_beat: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._codec: Codec[Message] = Codec(_KINDS)
        self._context = zmq.Context()
        socket = zmq_options.unconnected(self._context, b"", zmq_options.PUBLIC_FRAME_BYTES)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            socket.connect(endpoint)  # after the monitor: a quick handshake must not be missed
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ConfigError(
                f"endpoint: expected ipc://PATH or tcp://HOST:PORT, got {endpoint!r} ({error.strerror})"
            ) from None
        self._abandon = weakref.finalize(self, _destroy, self._context, socket, monitor)
        self._abandon.atexit = False  # another thread may still be at work with them
        self._monitor = ZmqReader(monitor, self._on_event, lambda: None)
        self._socket = socket
        self._reader = ZmqReader(socket, self._arrive, self._say_unsaid)
        self._on_beat = on_beat
        self.open_calls: dict[str, OpenCall] = {}
        self._unsaid: set[str] = set()
        self.is_connected = False  # now
        self.has_connected = False  # ever
        self.connected = asyncio.Event()
        self._heard_s = self._loop.time()
        self._incarnation = 0
        self._watch = self._loop.call_later(SILENCE_S / 4, self._watch_silence)

    @property
    def is_on_this_loop(self) -> bool:
        """Is the running event loop the one on which it lives?"""
        return asyncio.get_running_loop() is self._loop

    def open(self, key: str, call: OpenCall) -> None:
        """Say something whose answers carry this key, until `close`."""
        self.open_calls[key] = call
        self._unsaid.add(key)
        self._say_unsaid()

    def say_again(self, key: str) -> None:
        """Say an open call once more, as it stands now."""
        if key in self.open_calls:
            self._unsaid.add(key)
            self._say_unsaid()

    def close_call(self, key: str) -> None:
        """Its answers are of no interest any more."""
        self.open_calls.pop(key, None)
        self._unsaid.discard(key)

    def hint(self, message: Message) -> None:
        """Say something that may be lost."""
        self._reader.send([*self._codec.encode(message)])

    async def close(self) -> None:
        """Close the connection."""
        self._abandon.detach()
        self._watch.cancel()
        self._socket.disable_monitor()
        self._monitor.close()
        self._reader.close(_LINGER_MS)
        await self._loop.run_in_executor(None, self._context.term)

    def _say_unsaid(self) -> None:
        for key in tuple(self._unsaid):
            call = self.open_calls.get(key)
            if call is not None and not self._reader.send([*self._codec.encode(call.words())]):
                return
            self._unsaid.discard(key)

    def _say_all(self) -> None:
        self._heard_s = self._loop.time()
        self._unsaid |= self.open_calls.keys()
        self._say_unsaid()

    def _on_event(self, frames: list[bytes]) -> None:
        self.is_connected = parse_monitor_message(frames)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if self.is_connected:
            self.connected.set()
            if self.has_connected:
                self._say_all()
            self.has_connected = True

    def _arrive(self, frames: list[bytes]) -> None:
        try:
            message: Any = self._codec.decode(*frames) if len(frames) == 2 else None
        except WireError:
            return  # a front of another version: silence will tell
        self._heard_s = self._loop.time()
        if isinstance(message, public.Alive):
            if self._incarnation and message.incarnation != self._incarnation:
                self._say_all()
            self._incarnation = int(message.incarnation)
            self._on_beat()
        elif message is not None:
            call = self.open_calls.get(getattr(message, "request", "") or getattr(message, "call", ""))
            if call is not None:
                call.take(message)

    def _watch_silence(self) -> None:
        self._watch = self._loop.call_later(SILENCE_S / 4, self._watch_silence)
        self._reader.check()
        self._monitor.check()
        if self.open_calls and self.has_connected and self._loop.time() - self._heard_s > SILENCE_S:
            self._say_all()


def _destroy(context: zmq.Context, *sockets: zmq.Socket) -> None:
    """Of a client that nobody has closed: a context that is collected before its sockets waits for them for ever."""
    for socket in sockets:
        socket.close(linger=0)
    context.destroy(linger=0)
