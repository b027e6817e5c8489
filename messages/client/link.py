"""The client's connection to one gateway: one DEALER socket, over which every open call is sent again after a reconnection.

When a gateway dies, its connection is lost. ZeroMQ connects again as soon as the next incarnation has bound the same
endpoint. The socket's monitor reports the new connection, and all open calls are sent once more. The same happens when the
gateway's Alive messages stop or come from another incarnation. A gateway that says nothing for 5 s while calls are open is
taken to be gone: the link goes to the next gateway of the same server, if it knows one.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args

import zmq
from zmq.utils.monitor import parse_monitor_message

from messages import public
from messages.client.options import absence_of
from messages.errors import ConfigError, WireError
from messages.transport import zmq_options
from messages.transport.zmq_reader import ZmqReader
from messages.wire.codec import Codec
from messages.wire.message import Message

SILENCE_S = 2.0
_AWAY_LOOKS = 10  # a gateway is gone when it has said nothing between so many looks, one after each quarter of SILENCE_S
_LINGER_MS = 100  # after close: time for the last confirmation to leave
_KINDS = (*get_args(public.ClientMessage), *get_args(public.GatewayMessage))


class OpenCall(Protocol):
    """A call that waits for answers of the gateway."""

    def message(self) -> Message:
        """The message to send, also when it is sent again."""
        ...

    def handle(self, message: public.GatewayMessage) -> None:
        """Handle a message about this call."""
        ...

    def moved(self) -> None:
        """The message goes to another gateway from now on. The first gateway may have accepted it."""


class ClientLink:
    """Lives on one event loop. `on_alive` is called with each Alive, so that the caller confirms what it has received.

    `gateways`: the endpoints of all gateways of the server, as far as they are known now. `server_key`: their public key, if
    they use CURVE.
    Raises: ConfigError when the endpoint is not valid.
    """

    def __init__(
        self,
        endpoint: str,
        on_alive: Callable[[], None],
        gateways: Callable[[], Sequence[str]] = lambda: (),
        server_key: str = "",
    ) -> None:
        self.endpoint, self._gateways, self._has_server_key = endpoint, gateways, bool(server_key)
        self._loop = asyncio.get_running_loop()
        self._codec: Codec[Message] = Codec(_KINDS)
        self._context = zmq.Context()
        socket = zmq_options.client(self._context, server_key)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            socket.connect(endpoint)  # after the monitor: a quick handshake must not be missed
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ConfigError(
                f"endpoint: expected ipc://PATH or tcp://HOST:PORT, got {endpoint!r} ({error.strerror})"
            ) from None
        self._finalizer = weakref.finalize(self, _destroy, self._context, socket, monitor)
        self._finalizer.atexit = False  # another thread may still use the sockets
        self._monitor = ZmqReader(monitor, self._on_event, lambda: None)
        self._socket = socket
        self._reader = ZmqReader(socket, self._arrive, self._send_unsent)
        self._on_alive = on_alive
        self.open_calls: dict[str, OpenCall] = {}
        self._unsent: OrderedDict[str, None] = OrderedDict()  # keys of open calls whose message has not left yet, in order
        self.is_connected = False  # now
        self.has_connected = False  # at least once
        self.connected = asyncio.Event()
        self._heard_s = self._loop.time()
        self._n_silent_looks = 0  # looks at the socket that found no message; a pause of this process counts as one look
        self._incarnation = 0
        self._watch = self._loop.call_later(SILENCE_S / 4, self._watch_silence)

    @property
    def is_on_this_loop(self) -> bool:
        """True if the running event loop is the one on which this link lives."""
        return asyncio.get_running_loop() is self._loop

    def absence(self, endpoint: str) -> str:
        """The end of an error's sentence: why no server may answer at this endpoint, where this link has tried it."""
        return absence_of(endpoint, self._has_server_key)

    def open(self, key: str, call: OpenCall) -> None:
        """Send the message of a call, now and after each reconnection, until `close_call`. Its answers carry this key."""
        if not self.open_calls:
            self._n_silent_looks = 0
        self.open_calls[key] = call
        self._send_soon(key)

    def resend(self, key: str) -> None:
        """Send the message of an open call again, as it is now."""
        if key in self.open_calls:
            self._send_soon(key)

    def close_call(self, key: str) -> None:
        """Ignore further answers with this key, and do not send its message again."""
        self.open_calls.pop(key, None)
        self._unsent.pop(key, None)

    def send_once(self, message: Message) -> None:
        """Send a message that may be lost. It is dropped when it cannot leave now."""
        if self.is_connected:
            self._reader.send([*self._codec.encode(message)])

    def move(self) -> bool:
        """Go to the next gateway of the server, and send all open calls there. Returns False if no other one is known."""
        known = self._gateways()
        at = known.index(self.endpoint) + 1 if self.endpoint in known else 0
        following = [*known[at:], *known[:at]]
        if not following or following[0] == self.endpoint:
            return False
        self._socket.disconnect(self.endpoint)
        self.endpoint = following[0]
        self._socket.connect(self.endpoint)
        self.is_connected, self._incarnation, self._n_silent_looks = False, 0, 0
        for call in self.open_calls.values():
            call.moved()
        return True

    async def close(self) -> None:
        """Close the connection."""
        self._finalizer.detach()
        self._watch.cancel()
        self._socket.disable_monitor()
        self._monitor.close()
        self._reader.close(_LINGER_MS)
        await self._loop.run_in_executor(None, self._context.term)

    def _send_soon(self, key: str) -> None:
        """Send the message of an open call, after those that wait until the socket has room."""
        is_first = not self._unsent
        self._unsent[key] = None
        if is_first:
            self._send_unsent()

    def _send_unsent(self) -> None:
        """Send what waits. Without a connection nothing is sent: the socket would keep it for the next one, which gets all open
        calls anyway."""
        while self._unsent and self.is_connected:
            key = next(iter(self._unsent))
            if not self._reader.send([*self._codec.encode(self.open_calls[key].message())]):
                return
            del self._unsent[key]

    def _resend_all(self) -> None:
        self._heard_s = self._loop.time()
        self._unsent.update(dict.fromkeys(self.open_calls))
        self._send_unsent()

    def _on_event(self, frames: list[bytes]) -> None:
        self.is_connected = parse_monitor_message(frames)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if self.is_connected:
            self.connected.set()
            self.has_connected = True
            self._resend_all()

    def _arrive(self, frames: list[bytes]) -> None:
        try:
            message: Any = self._codec.decode(*frames) if len(frames) == 2 else None
        except WireError:
            return  # a gateway of another version: its silence will be noticed
        self._heard_s, self._n_silent_looks = self._loop.time(), 0
        if isinstance(message, public.Alive):
            if self._incarnation and message.incarnation != self._incarnation:
                self._resend_all()
            self._incarnation = int(message.incarnation)
            self._on_alive()
        elif message is not None:
            call = self.open_calls.get(getattr(message, "request", "") or getattr(message, "call", ""))
            if call is not None:
                call.handle(message)

    def _watch_silence(self) -> None:
        self._watch = self._loop.call_later(SILENCE_S / 4, self._watch_silence)
        self._reader.poll()
        self._monitor.poll()
        if self.open_calls and self.has_connected:
            self._look()

    def _look(self) -> None:
        """Ask a silent gateway again, and go to another one when it stays silent."""
        self._n_silent_looks += 1
        if self._n_silent_looks > _AWAY_LOOKS and self.move():
            return
        if self._loop.time() - self._heard_s > SILENCE_S:
            self._resend_all()


def _destroy(context: zmq.Context, *sockets: zmq.Socket) -> None:
    """Close the sockets of a link that was never closed. A context that is collected before its sockets would hang for ever."""
    for socket in sockets:
        socket.close(linger=0)
    context.destroy(linger=0)
