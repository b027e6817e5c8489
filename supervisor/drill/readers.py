"""Processes that read the streams of a drill. One process reads some dozens of fast streams in time; with more of them its own
delay would be measured as a pause of the server."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from multiprocessing.connection import Connection

from supervisor.drill.streams import DrillStream, StreamRequest, follow

Follow = Callable[[StreamRequest, DrillStream], Awaitable[None]]

_STREAMS_EACH = 48
_CORES_EACH = 4  # the server needs most of them
_LOOK_EVERY_S = 0.02
_END_S = 5.0


def n_readers_for(n_streams: int, n_cores: int | None = None) -> int:
    """How many processes read so many streams, where nobody says it. 1: the drill reads them itself."""
    n_cores = n_cores or len(os.sched_getaffinity(0))
    return max(1, min(-(-n_streams // _STREAMS_EACH), n_cores // _CORES_EACH))


def following(n_readers: int) -> AbstractContextManager[Follow]:
    """What follows a stream to its end, as `follow` does: in this process, or in so many others."""
    return nullcontext(follow) if n_readers == 1 else _StreamReaders(n_readers)


class _StreamReaders(AbstractContextManager[Follow]):
    def __init__(self, n: int) -> None:
        self._readers = [_StreamReader() for _ in range(n)]
        self._turn = count()

    def __enter__(self) -> Follow:
        return self.follow

    def __exit__(self, *error: object) -> None:
        for reader in self._readers:
            reader.close()

    async def follow(self, options: StreamRequest, stream: DrillStream) -> None:
        await self._readers[next(self._turn) % len(self._readers)].follow(options, stream)


class _StreamReader:
    """The drill's end of one process. What comes from it: (number of a stream, None) when that has its first text, and
    (number, the stream) at its end."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_read, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._numbers = count()
        self._waiting: dict[int, tuple[DrillStream, asyncio.Future[None]]] = {}

    async def follow(self, options: StreamRequest, stream: DrillStream) -> None:
        """Raises: ConnectionError if the process has died."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.add_reader(self._connection.fileno(), self._take, loop)
        number, ended = next(self._numbers), loop.create_future()
        self._waiting[number] = stream, ended
        self._connection.send((number, options, stream))
        await ended

    def close(self) -> None:
        """End the process: it reads that nobody is there any more."""
        self._connection.close()
        self._process.join(_END_S)
        self._process.kill()

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            number, seen = self._connection.recv()
        except (EOFError, OSError):
            loop.remove_reader(self._connection.fileno())
            for _, ended in self._waiting.values():
                if not ended.done():
                    ended.set_exception(ConnectionError("a process that reads streams has died"))
            return
        stream, ended = self._waiting[number]
        if seen is None:
            stream.pieces.append("")
            return
        vars(stream).update(vars(seen))
        del self._waiting[number]
        if not self._waiting:
            loop.remove_reader(self._connection.fileno())
        if not ended.done():
            ended.set_result(None)


def _read(connection: Connection) -> None:
    """The program of such a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the drill
    asyncio.run(_serve(connection))


async def _serve(connection: Connection) -> None:
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    work = set[asyncio.Task[None]]()
    with ThreadPoolExecutor(1) as sender:

        def take() -> None:
            try:
                one = asyncio.create_task(_follow(connection, sender, *connection.recv()))
            except (EOFError, OSError):
                gone.set()
                loop.remove_reader(connection.fileno())
                return
            work.add(one)
            one.add_done_callback(work.discard)

        loop.add_reader(connection.fileno(), take)
        await gone.wait()


async def _follow(
    connection: Connection, sender: ThreadPoolExecutor, number: int, options: StreamRequest, stream: DrillStream
) -> None:
    """Follow a stream. What is told of it is sent by a thread, so that no other stream waits for the pipe."""
    work = asyncio.create_task(follow(options, stream))
    while not (stream.pieces or work.done()):
        await asyncio.wait({work}, timeout=_LOOK_EVERY_S)
    sender.submit(connection.send, (number, None))
    await work
    sender.submit(connection.send, (number, stream))
