"""The client of a descriptor store for asyncio. Requests are sent at once, in the order of the calls; answers are awaited."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from messages.descriptors.client import KeptDescriptor, expect_done, read_answer, read_found
from messages.descriptors.packets import (
    MAX_BATCH,
    Answer,
    Change,
    Changes,
    Drop,
    Find,
    Found,
    NotKept,
    Put,
    Request,
    close_all,
    open_link,
    receive_packet,
    send_packet,
)
from messages.errors import DescriptorError

_MAX_WAITING = 4096  # requests without an answer
_Reply = tuple[Answer, list[int]]


class AsyncDescriptorClient:
    """One connection to the store at `path`. `closed` is done when the store has gone; every later call raises DescriptorError,
    and a new client is needed.

    `on_not_kept`: called with the keys of changes for which the store has no room."""

    def __init__(self, path: Path, on_not_kept: Callable[[list[str]], None] = lambda keys: None) -> None:
        """Connect, inside a running loop. Raises: DescriptorError when no store listens there."""
        try:
            self._link = open_link(path, None)
        except OSError as error:
            raise DescriptorError(f"{path}: expected a descriptor store, got {error.strerror or error}") from None
        self._on_not_kept = on_not_kept
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._waiting: deque[asyncio.Future[_Reply]] = deque()
        self._unsent: deque[tuple[Request, list[int]]] = deque()
        self._loop.add_reader(self._link, self._read)

    @property
    def has_unsent(self) -> bool:
        """True while the store has not read what it was sent."""
        return bool(self._unsent)

    def close(self) -> None:
        """Close the connection; entries stay. Calls that wait raise DescriptorError."""
        if self.closed.done():
            return
        self._loop.remove_reader(self._link)
        self._loop.remove_writer(self._link)
        self._link.close()
        close_all([one for _, descriptors in self._unsent for one in descriptors])
        self._unsent.clear()
        self.closed.set_result(None)
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(DescriptorError("the descriptor store has closed the connection"))
                waiting.exception()  # a caller that does not wait causes no warning

    async def put(self, owner: str, key: str, descriptor: int, meta: bytes = b"") -> None:
        """Let the store keep a copy of a descriptor; see `start_put`."""
        await self.start_put(owner, key, descriptor, meta)

    def start_put(self, owner: str, key: str, descriptor: int, meta: bytes = b"") -> asyncio.Future[None]:
        """Send the Put now; the caller may close its descriptor afterwards. The future ends when the store has it.

        Raises: DescriptorError when the store has gone, or when too many requests wait."""
        return self._done(self._ask(Put(owner, key, meta), [descriptor]))

    def start_drop(self, owner: str, key: str = "") -> asyncio.Future[None]:
        """Send the Drop of one entry, or of all entries of an owner, now. Raises: DescriptorError as `start_put`."""
        return self._done(self._ask(Drop(owner, key)))

    def tell(self, owner: str, changes: Sequence[tuple[Change, int | None]]) -> None:
        """Send changes, each with its descriptor, in as few packets as possible. They have no answer; `on_not_kept` is called
        when the store has no room. The caller may close the descriptors afterwards. Nothing is raised when the store has gone:
        `closed` says so.
        """
        for start in range(0, len(changes), MAX_BATCH):
            some = changes[start : start + MAX_BATCH]
            self._tell(Changes(owner, [change for change, _ in some]), [one for _, one in some if one is not None])

    async def drop(self, owner: str, key: str = "") -> None:
        """Close one entry, or all entries of an owner."""
        await self.start_drop(owner, key)

    async def find(self, owner: str, key: str = "") -> list[KeptDescriptor]:
        """The entry with this key, or all entries of an owner in the order in which they were put."""
        found: list[KeptDescriptor] = []
        after = 0
        try:
            while True:
                answer, descriptors = await self._ask(Find(owner, key, after))
                entries, is_last = read_found(answer, descriptors)
                found += entries
                if is_last or not isinstance(answer, Found):
                    return found
                after = answer.entries[-1].number
        except BaseException:
            close_all([one.descriptor for one in found])
            raise

    def _ask(self, request: Request, descriptors: Sequence[int] = ()) -> asyncio.Future[_Reply]:
        if self.closed.done():
            raise DescriptorError("the descriptor store has closed the connection")
        if len(self._waiting) >= _MAX_WAITING:
            raise DescriptorError(f"requests without an answer: expected at most {_MAX_WAITING}, got one more")
        reply: asyncio.Future[_Reply] = self._loop.create_future()
        self._waiting.append(reply)
        if self._unsent or not self._send(request, descriptors):
            self._queue(request, descriptors)
        return reply

    def _tell(self, request: Request, descriptors: Sequence[int]) -> None:
        if self.closed.done():
            return
        if self._unsent or not self._send(request, descriptors):
            self._queue(request, descriptors)
            if len(self._unsent) > _MAX_WAITING:  # the store does not read
                self.close()

    def _done(self, reply: asyncio.Future[_Reply]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()

        def finish(reply: asyncio.Future[_Reply]) -> None:
            if done.done():
                return
            try:
                expect_done(reply.result()[0])
                done.set_result(None)
            except (DescriptorError, asyncio.CancelledError) as error:
                done.set_exception(DescriptorError(str(error)))
                done.exception()

        reply.add_done_callback(finish)
        return done

    def _send(self, request: Request, descriptors: Sequence[int]) -> bool:
        """Send one request. Returns False when the socket has no room."""
        try:
            send_packet(self._link, request, descriptors)
        except BlockingIOError:
            return False
        except OSError:
            self._loop.call_soon(self.close)
        return True

    def _queue(self, request: Request, descriptors: Sequence[int]) -> None:
        copies: list[int] = []
        self._unsent.append((request, copies))
        try:
            copies.extend(map(os.dup, descriptors))
            self._loop.add_writer(self._link, self._send_queued)
        except OSError:  # no descriptor is left
            self._loop.call_soon(self.close)

    def _send_queued(self) -> None:
        while self._unsent:
            request, copies = self._unsent[0]
            if not self._send(request, copies):
                return
            self._unsent.popleft()
            close_all(copies)
        self._loop.remove_writer(self._link)

    def _read(self) -> None:
        while not self.closed.done():
            try:
                packet = receive_packet(self._link)
                reply = None if packet is None else read_answer(*packet)
            except BlockingIOError:
                return
            except (OSError, DescriptorError):
                reply = None
            if reply is not None and isinstance(reply[0], NotKept):
                self._on_not_kept(reply[0].keys)
                continue
            if reply is None or not self._waiting:
                with suppress(OSError):
                    close_all(reply[1] if reply is not None else [])
                self.close()
                return
            waiting = self._waiting.popleft()
            if waiting.done():  # its caller has gone
                close_all(reply[1])
            else:
                waiting.set_result(reply)
