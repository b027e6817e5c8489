"""The public ROUTER socket of one gateway: bound to its addresses, and bound again when its file is removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog
import zmq

from messages.access.curve_keys import read_curve_keys
from messages.errors import ConfigError
from messages.transport import zmq_options
from messages.transport.zmq_reader import ZmqReader

_LINGER_S = 0.01  # so that ZeroMQ's I/O thread can send what is in the pipes


class PublicSocket:
    """An open socket. `reader` sends and receives with it."""

    def __init__(
        self,
        endpoint: str,
        tcp_endpoint: str,
        key_file: str,
        on_frames: Callable[[list[bytes]], None],
        on_writable: Callable[[], None],
    ) -> None:
        """Bind to `endpoint`, and to `tcp_endpoint` unless it is "": with the CURVE keys in `key_file` unless that is "".
        `on_frames`: called with each message; its first frame is the identity of the sender. `on_writable`: called when a
        refused send may be tried again.
        """
        self._endpoint = endpoint
        path = endpoint.removeprefix("ipc://")
        self._path = path if path != endpoint else ""
        if self._path and os.path.exists(path):
            os.unlink(path)  # left by an earlier incarnation, which has ended
        self._context = zmq.Context()
        self._socket = zmq_options.public_router(self._context, endpoint)
        if self._path:
            os.chmod(path, 0o600)
        self._tcp_endpoint, self._key_file, self._has_said = tcp_endpoint, key_file, False
        self._is_tcp_missing = bool(tcp_endpoint)
        self._bind_tcp()
        self.reader = ZmqReader(self._socket, on_frames, on_writable, tells_addresses=bool(tcp_endpoint))

    def poll(self) -> None:
        """Handle events that were missed, and make the socket's file again if it was removed. Call it about twice a second."""
        self.reader.poll()
        self._bind_tcp()
        if self._path and not os.path.exists(self._path):
            self._bind_again()

    async def close(self) -> None:
        """Close the socket, after a short time in which messages that wait in its pipes can leave."""
        await asyncio.sleep(_LINGER_S)
        self.reader.close()
        await asyncio.get_running_loop().run_in_executor(None, self._context.term)

    def _bind_tcp(self) -> None:
        """Bind to the second address. With keys that cannot be read it is done at a later poll: all other doors are open."""
        if not self._is_tcp_missing:
            return
        if not self._key_file:
            self._socket.bind(self._tcp_endpoint)
        else:
            try:
                keys = read_curve_keys(Path(self._key_file))
            except ConfigError as error:
                if not self._has_said:
                    structlog.get_logger().error("no ZeroMQ over TCP until its keys can be read", reason=str(error))
                self._has_said = True
                return
            zmq_options.bind_encrypted(self._socket, self._tcp_endpoint, keys.secret)
        self._is_tcp_missing = False

    def _bind_again(self) -> None:
        """Somebody has removed the socket's file: make it again, so that new clients find this gateway."""
        with suppress(zmq.ZMQError, OSError):  # its directory has gone too, or no descriptor is left: the next poll tries again
            self._socket.bind(self._endpoint)
            os.chmod(self._path, 0o600)
