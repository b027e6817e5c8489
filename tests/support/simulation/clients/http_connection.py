"""The client's end of one HTTP connection, over a unix socket, and the byte counts that TCP would have for its other end."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.gateway.custody import hold
from actors.gateway.custody.tcp_counts import TcpCounts
from actors.gateway.takeover import left_answers

_READ_BYTES = 4096


class Cut(Exception):
    """The connection ended in the middle of something."""


class HttpConnection:
    """One connection. `name`: a path that is free, by which the other end is found. Reading may be delayed by `pause`."""

    by_name: dict[str, HttpConnection] = {}  # of this simulation

    def __init__(self, name: Path, pause: Callable[[], float]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(name))
        self._pause = pause
        self._buffer = b""
        self.n_read = self.n_written = 0
        self.by_name[str(name)] = self

    async def connect(self, path: Path) -> None:
        """Connect to the socket at `path`. Raises: OSError when nobody listens there."""
        await asyncio.get_running_loop().sock_connect(self._socket, str(path))

    def close(self) -> None:
        """Leave."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    async def send(self, data: bytes) -> None:
        """Send all of `data`. Raises: OSError when the connection has ended."""
        self.n_written += len(data)
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def read_head(self) -> tuple[int, dict[bytes, bytes]]:
        """(status, headers) of a response. Raises: Cut."""
        first, *lines = (await self._until(b"\r\n\r\n")).split(b"\r\n")
        return int(first.split()[1]), {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}

    async def read_body(self, headers: dict[bytes, bytes]) -> bytes:
        """The whole body. Raises: Cut."""
        if b"content-length" not in headers:
            return b"".join([chunk async for chunk in self.chunks()])
        return await self._exactly(int(headers[b"content-length"]))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of a chunked body. Raises: Cut."""
        while size := int(await self._until(b"\r\n"), 16):
            yield (await self._exactly(size + 2))[:-2]
        await self._exactly(2)

    async def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            await self._more()
        found, _, self._buffer = self._buffer.partition(end)
        return found

    async def _exactly(self, n_bytes: int) -> bytes:
        while len(self._buffer) < n_bytes:
            await self._more()
        found, self._buffer = self._buffer[:n_bytes], self._buffer[n_bytes:]
        return found

    async def _more(self) -> None:
        if (pause_s := self._pause()) > 0.0:
            await asyncio.sleep(pause_s)
        try:
            data = await asyncio.get_running_loop().sock_recv(self._socket, _READ_BYTES)
        except OSError as error:
            raise Cut(str(error)) from None
        if not data:
            raise Cut("the server has closed the connection")
        self.n_read += len(data)
        self._buffer += data

    def counts(self, server_fd: int) -> TcpCounts:
        """What the kernel would count at the other end, whose descriptor is `server_fd`."""
        unread = _unread(self._socket.fileno()) if self._socket.fileno() >= 0 else 0
        return TcpCounts(self.n_read + unread, self.n_written - _unread(server_fd))


def _unread(fd: int) -> int:
    count = array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


def _counts_of(fd: int) -> TcpCounts | None:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
    try:
        return HttpConnection.by_name[one.getpeername()].counts(fd)
    except (OSError, KeyError):
        return None
    finally:
        one.detach()


def make_connections_countable(patch: Callable[[Any, str, Any], None]) -> None:
    """Replace the counts of TCP sockets. `patch(object, name, value)` must undo itself after the simulation."""
    HttpConnection.by_name = {}
    patch(hold, "tcp_counts", _counts_of)
    patch(left_answers, "tcp_counts", _counts_of)
