"""A ZeroMQ socket on an asyncio loop, drained in batches from its file descriptor.

The descriptor is edge-triggered, and a send can consume the edge. So EVENTS is read before every message, which takes less than
the exception that an empty socket raises, and after sends: once for all of a turn of the event loop, because it takes three
times as long as to send three frames. A frame knows whether another one follows; to ask the socket takes as long as to receive
a frame. pyzmq's multipart calls compute their flags for each frame and are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

_EVENTS = int(zmq.EVENTS)
_READABLE, _WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
_NOW, _NOW_AND_MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)
_DRAIN_MESSAGES = 256  # then other callbacks run: one busy peer must not starve the others


class ZmqReader:
    """Owns one socket: calls `on_message(frames)` for each message, `on_writable()` when a refused send may be tried again.

    `tells_addresses`: during `on_message`, `sender_address` is the IP address of the sender; that of one which came by ipc
    begins with "localhost:".
    """

    def __init__(
        self,
        socket: zmq.Socket,
        on_message: Callable[[list[bytes]], None],
        on_writable: Callable[[], None],
        *,
        tells_addresses: bool = False,
    ) -> None:
        self._socket = socket
        self._on_message, self._on_writable = on_message, on_writable
        self._tells_addresses, self.sender_address = tells_addresses, ""
        self._loop = asyncio.get_running_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._is_closed = False
        self._is_check_pending = False
        self._is_refused = False  # a send was refused and waits for room
        is_router = socket.getsockopt(zmq.TYPE) == zmq.ROUTER  # writable means writable for some peer, perhaps another
        self._useful_events = _READABLE if is_router else _READABLE | _WRITABLE
        self._loop.add_reader(self._fd, self._check)
        self._check_soon()

    def send(self, frames: list[bytes]) -> bool:
        """Send one message if it can leave now; False when the pipe is full, not connected yet, or closed."""
        if self._is_closed:
            return False
        socket = self._socket
        try:
            for frame in frames[:-1]:
                socket.send(frame, _NOW_AND_MORE)
            socket.send(frames[-1], _NOW)
        except zmq.Again:
            self._is_refused = True
            if socket.get(_EVENTS) & self._useful_events:  # pyright: ignore[reportOperatorIssue]
                self._check_soon()
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise  # otherwise the peer of this ROUTER identity is gone: the message has no receiver any more
        self._check_soon()
        return True

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket. No callback is called afterwards. Messages in the pipe have `linger_ms` to leave."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._fd)
            self._socket.close(linger=linger_ms)

    def poll(self) -> None:
        """Look for missed events. To be called about once a second."""
        self._check_soon()

    def _check_soon(self) -> None:
        if not self._is_check_pending and not self._is_closed:
            self._is_check_pending = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_check_pending = False
        n_left = _DRAIN_MESSAGES
        while not self._is_closed:
            events = self._socket.get(_EVENTS)
            assert isinstance(events, int)
            if not events & _READABLE or not n_left:
                break
            n_left -= 1
            try:
                frames = self._receive()
            except zmq.Again:
                break
            self._on_message(frames)
        else:
            return
        if events & _READABLE:
            self._check_soon()
        if events & _WRITABLE:
            self._is_refused = False
            self._on_writable()

    def _receive(self) -> list[bytes]:
        receive = self._socket.recv
        frame = receive(_NOW, copy=False)
        if self._tells_addresses:
            try:
                self.sender_address = str(frame.get("Peer-Address"))
            except zmq.ZMQError:  # it has none
                self.sender_address = ""
        frames = [frame.bytes]
        while frame.more:
            frame = receive(_NOW, copy=False)
            frames.append(frame.bytes)
        return frames
