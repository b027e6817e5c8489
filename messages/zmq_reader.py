"""A ZeroMQ socket on an asyncio loop, drained in batches from its file descriptor.

The descriptor is edge-triggered and a send can swallow the edge, so EVENTS is looked at again after every burst of sends and
receives. A tenth of the cost of one awaited receive per frame, and nothing is ever cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

_DRAIN_MESSAGES = 256  # then the loop gets a turn: one busy peer must not starve the others


class ZmqReader:
    """Owns one socket: calls `on_message(frames)` for each message, `on_writable()` when a refused send may be tried again."""

    def __init__(self, socket: zmq.Socket, on_message: Callable[[list[bytes]], None], on_writable: Callable[[], None]) -> None:
        self._socket = socket
        self._on_message, self._on_writable = on_message, on_writable
        self._loop = asyncio.get_running_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._is_closed = False
        self._is_check_pending = False
        self._loop.add_reader(self._fd, self._check)
        self._check_soon()

    def send(self, frames: list[bytes]) -> bool:
        """Send one message if it can leave now; False when the pipe is full or not connected yet."""
        try:
            self._socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            self._check_soon()
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return True  # the peer behind a ROUTER identity is gone: nothing is left to be told
        self._check_soon()
        return True

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; nothing is called afterwards. What was sent may go on leaving for `linger_ms`."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._fd)
            self._socket.close(linger=linger_ms)

    def check(self) -> None:
        """Look for missed events (the safety sweep calls this about once a second)."""
        self._check_soon()

    def _check_soon(self) -> None:
        if not self._is_check_pending and not self._is_closed:
            self._is_check_pending = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_check_pending = False
        if self._is_closed:
            return
        events = self._socket.getsockopt(zmq.EVENTS)
        assert isinstance(events, int)
        if events & zmq.POLLOUT:
            self._on_writable()
        if events & zmq.POLLIN and self._drain():
            self._check_soon()

    def _drain(self) -> bool:
        """Receive up to a bound; True when another look is due."""
        for _ in range(_DRAIN_MESSAGES):
            if self._is_closed:
                return False
            try:
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return False
            self._on_message(frames)
        return True
