"""A proxy between two unix sockets, which can cut its connections, or swallow what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class ByteProxy:
    """Passes bytes on, in both directions, until `cut` or `swallow`; later connections are passed on again."""

    def __init__(self, path: Path, target: Path) -> None:
        self.endpoint = f"ipc://{path}"
        self.n_connections = 0
        self._path, self._target = path, target
        self._writers: list[asyncio.StreamWriter] = []
        self._swallows_below = 0  # connections with a lower number are swallowed
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._connected, self._path)

    def cut(self) -> None:
        """Close every connection on both sides. What is under way is lost."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def swallow(self) -> None:
        """Keep the present connections open, and pass nothing on over them any more."""
        self._swallows_below = self.n_connections

    async def close(self) -> None:
        """End everything."""
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.n_connections = self.n_connections, self.n_connections + 1
        there, back = await asyncio.open_unix_connection(self._target)
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.ensure_future(self._pass_on(number, source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, number: int, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if number >= self._swallows_below:
                    sink.write(data)
            sink.close()


@asynccontextmanager
async def byte_proxy(path: Path, target: Path) -> AsyncIterator[ByteProxy]:
    """A proxy that listens at `path` and passes on to `target`."""
    proxy = ByteProxy(path, target)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
