"""Threads in which callers take turns, so that the work of one caller does not wait for all that of another one."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)  # as many as asyncio's own executor has
T = TypeVar("T")


class CallerThreads:
    """At most `n_threads` threads. One caller has all but one of them at most, so that there is one for the next caller."""

    def __init__(self, n_threads: int, name: str) -> None:
        self._threads, self._n_free = ThreadPoolExecutor(n_threads, name), n_threads
        self._most_of_one = max(n_threads - 1, 1)
        self._n_running: Counter[bytes] = Counter()
        self._waiting: dict[bytes, deque[asyncio.Future[None]]] = {}  # the first caller that may run is next

    async def run(self, caller: bytes, work: Callable[[], T]) -> T:
        """What `work` returns, or raises, in a thread. Waits for the turn of this caller. Raises: RuntimeError if no thread can
        be started."""
        if not self._may_run(caller):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(caller, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # it had its turn already
                    self._end(caller)
                raise
        else:
            self._begin(caller)
        try:
            running = self._threads.submit(work)
        except RuntimeError:  # no thread can be started
            self._end(caller)
            raise
        running.add_done_callback(partial(self._done, asyncio.get_running_loop(), caller))  # it may outlive its waiter
        return await asyncio.wrap_future(running)

    def _may_run(self, caller: bytes) -> bool:
        return self._n_free > 0 and self._n_running[caller] < self._most_of_one

    def _begin(self, caller: bytes) -> None:
        self._n_free -= 1
        self._n_running[caller] += 1

    def _done(self, loop: asyncio.AbstractEventLoop, caller: bytes, running: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._end, caller)

    def _end(self, caller: bytes) -> None:
        """Work of this caller is over: the next one runs."""
        self._n_free += 1
        self._n_running[caller] -= 1
        if not self._n_running[caller]:
            del self._n_running[caller]
        while (found := next(filter(self._may_run, self._waiting), None)) is not None:
            turns = self._waiting.pop(found)
            turn = turns.popleft()
            if turns:
                self._waiting[found] = turns  # behind the other callers
            if not turn.done():  # its waiter has not left
                self._begin(found)
                turn.set_result(None)
