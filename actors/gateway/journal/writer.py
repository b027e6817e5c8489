"""The journal's writer thread: group commit, and patience with a disk that refuses or does not answer.

    healthy --(the disk refuses a commit)--> refusing: tried again after 0.05 s, 0.1 s, ... 1 s --(a commit passes)--> healthy
    healthy or refusing --(a statement does not end)--> hanging --(it ends)--> healthy or refusing

While the disk refuses, `done` means "in this process's memory", for tokens and endings up to the backlog's bound: clients see
them and schedulers are acknowledged all the same. A kill of the process loses these records; the requests themselves were
recorded before, and the next life has their tokens computed again. New requests are never accepted from memory. While a commit
hangs (a network disk, a device with errors) its thread can do nothing at all: the loop sees it, and whatever was recorded
nowhere waits.

Only errors that may pass by themselves are waited for: full, read-only, locked, input/output. Anything else means that this
process can keep its promise no longer: the thread ends and says so.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import structlog

from actors.gateway.journal.backlog import Backlog, Callback, Entry

_BATCH_ENTRIES = 4096
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0
_LAST_WORDS_S = 10.0


class JournalState(NamedTuple):
    """How the journal stands. `trouble` is empty while the disk takes writes."""

    trouble: str = ""
    waiting_bytes: int = 0  # answered from memory, not recorded
    is_full: bool = False  # more would be: answers wait
    is_hanging: bool = False  # the disk neither takes nor refuses what it was given

    def __str__(self) -> str:
        if self.is_hanging:
            return "hangs"
        return "healthy" if not self.trouble else "refuses writes, buffer full" if self.is_full else "refuses writes"


class JournalWriter:
    """Owns the connection from `start` to `close`. Callbacks run on the loop on which it was started, in order."""

    def __init__(self, connection: sqlite3.Connection, limit_bytes: int, window_s: float, hang_s: float, name: str) -> None:
        self._connection, self._window_s, self._hang_s = connection, window_s, hang_s
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._backlog = Backlog(limit_bytes)
        self._log = structlog.get_logger().bind(journal=name)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._trouble = ""
        self._retry_at_s = self._retry_wait_s = 0.0
        self.state = JournalState()  # read it on the loop
        self.on_commit: Callable[[float], None] = lambda took_s: None  # seconds; on the loop, like all that follow
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.on_hang: Callable[[], None] = lambda: None
        self._busy_since_s = 0.0  # when the present statement began, by the monotonic clock; 0: there is none
        self._look_timer: asyncio.TimerHandle | None = None
        self.put = self._queue.put

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._look()

    async def close(self) -> None:
        """Write what is left, if the disk takes it, and close the file."""
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join, _LAST_WORDS_S)
        if self._trouble:
            self._log.error("journal closed without its last entries", entries=len(self._backlog), error=self._trouble)
        self._connection.close()

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            for is_due in self._gather():
                if is_due:
                    self._record_all()
                else:
                    self._say(self._backlog.refused())
        except BaseException as error:  # whatever it is: nobody would be answered any more
            self._say_soon(self._failed, error)

    def _gather(self) -> Iterator[bool]:
        """Move what has come into the backlog; yields whether to try the disk. Ends after `close`."""
        while True:
            wait_s = max(0.0, self._retry_at_s - time.monotonic()) if self._trouble else None
            try:
                entry = self._queue.get(timeout=wait_s)
            except queue.Empty:
                yield True
                continue
            if self._window_s:
                time.sleep(self._window_s)
            batch = []
            while entry is not None:
                batch.append(entry)
                if len(batch) >= _BATCH_ENTRIES:
                    break
                try:
                    entry = self._queue.get_nowait()
                except queue.Empty:
                    break
            self._backlog.add(batch)
            yield entry is None or not self._trouble or time.monotonic() >= self._retry_at_s
            if entry is None:
                return

    def _record_all(self) -> None:
        while batch := self._backlog.first(_BATCH_ENTRIES):
            began_s = time.monotonic()
            trouble = self._commit(batch)
            self._busy_since_s = 0.0
            if trouble:
                self._retry_wait_s = min(max(2 * self._retry_wait_s, _FIRST_RETRY_S), _LONGEST_RETRY_S)
                self._retry_at_s = time.monotonic() + self._retry_wait_s
                self._trouble = trouble
                self._say(self._backlog.refused())
                return
            self._trouble, self._retry_wait_s = "", 0.0
            self._say(self._backlog.recorded(len(batch)), time.monotonic() - began_s)

    def _commit(self, batch: list[Entry]) -> str:
        """Record some entries together; returns what the disk says against it, "" for nothing."""
        connection = self._connection
        try:
            self._execute("BEGIN IMMEDIATE")
            for entry in batch:
                if entry.statement:
                    self._execute(entry.statement, entry.values)
            self._execute("COMMIT")
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF == sqlite3.SQLITE_ERROR:
                raise  # a statement that can never work
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return str(error)
        return ""

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """One by one they are watched: many that take their time are no hang."""
        self._busy_since_s = time.monotonic()
        self._connection.execute(statement, values)

    def _say(self, calls: list[Callback], took_s: float = -1.0) -> None:
        state = JournalState(self._trouble, self._backlog.n_bytes, bool(self._trouble) and self._backlog.is_full)
        self._say_soon(self._answer, calls, state, took_s)

    def _say_soon(self, call: Callable[..., None], *values: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *values)

    # -- on the loop ----------------------------------------------------------------------------------------------

    def _answer(self, calls: list[Callback], state: JournalState, took_s: float) -> None:
        self._show(state)
        if took_s >= 0.0:
            self.on_commit(took_s)
        for call in calls:
            call()

    def _look(self) -> None:
        """Does a commit hang?"""
        self._look_timer = self._loop.call_later(self._hang_s / 4, self._look)
        since_s = self._busy_since_s
        if since_s and not self.state.is_hanging and time.monotonic() - since_s > self._hang_s:
            trouble = f"the disk has not answered for {self._hang_s:g} s"
            self._show(JournalState(trouble, self.state.waiting_bytes, is_hanging=True))
            self.on_hang()

    def _show(self, state: JournalState) -> None:
        before, self.state = self.state, state
        if str(before) != str(state):
            say = self._log.error if state.trouble else self._log.info
            say(f"journal: {state}", error=state.trouble, waiting_bytes=state.waiting_bytes)

    def _failed(self, error: BaseException) -> None:
        self.on_failure(error)
