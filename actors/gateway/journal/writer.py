"""The journal's writer thread: group commit, retries while the disk refuses writes, and a watch for writes that hang.

    healthy --(the disk refuses a commit)--> refusing: retried after 0.05 s, 0.1 s, ... 1 s --(a commit succeeds)--> healthy
    healthy or refusing --(a statement does not return)--> hanging --(it returns)--> healthy or refusing

While the disk refuses writes, `done` means "in this process's memory" for tokens and endings, up to the backlog's limit:
clients see them and schedulers are acknowledged. If the process is killed then, these records are lost. The requests themselves
were recorded before, so the next incarnation has their tokens computed again. New requests are never accepted from memory.
While a statement hangs (a network disk, a device with errors) the thread can do nothing: the event loop notices it, and
everything that is not recorded waits.

Only errors that may pass by themselves are retried: disk full, read-only, locked, input/output. After any other error the
thread ends and calls `on_failure`, because nothing can be recorded any more.
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
_CLOSE_WAIT_S = 10.0


def can_never_work(error: sqlite3.OperationalError) -> bool:
    """True if the statement does not fit the file (no such table, no such column), so that a later attempt fails as well."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF == sqlite3.SQLITE_ERROR


class JournalState(NamedTuple):
    """State of the journal. `trouble`: the disk's error, "" while it accepts writes."""

    trouble: str = ""
    waiting_bytes: int = 0  # in memory, callers answered, not recorded
    is_full: bool = False  # the limit of `waiting_bytes` is reached: callers wait
    is_hanging: bool = False  # a statement has neither succeeded nor failed for `hang_s`

    def __str__(self) -> str:
        if self.is_hanging:
            return "hangs"
        return "healthy" if not self.trouble else "refuses writes, buffer full" if self.is_full else "refuses writes"


class JournalWriter:
    """Owns the SQLite connection from `start` to `close`. Callbacks run in order on the event loop that creates it."""

    def __init__(self, connection: sqlite3.Connection, limit_bytes: int, window_s: float, hang_s: float, name: str) -> None:
        self._connection, self._window_s, self._hang_s = connection, window_s, hang_s
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._backlog = Backlog(limit_bytes)
        self._log = structlog.get_logger().bind(journal=name)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._trouble = ""
        self._retry_at_s = self._retry_wait_s = 0.0
        self.state = JournalState()  # changes on the event loop only
        self.on_commit: Callable[[float], None] = lambda took_s: None  # seconds; this and the next two run on the event loop
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.on_hang: Callable[[], None] = lambda: None
        self._busy_since_s = 0.0  # monotonic time at which the running statement began, 0: none runs
        self._check_timer: asyncio.TimerHandle | None = None
        self.put = self._queue.put

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._check_hang()

    async def close(self) -> None:
        """Write what is left, if the disk accepts it within 10 s, and close the file."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join, _CLOSE_WAIT_S)
        if self._trouble:
            self._log.error(
                "journal closed, its last entries are not recorded", entries=len(self._backlog), error=self._trouble
            )
        self._connection.close()

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            for is_due in self._gather():
                if is_due:
                    self._record_all()
                else:
                    self._answer_soon(self._backlog.refused())
        except BaseException as error:  # after any error no caller would be answered
            self._call_soon(self._failed, error)

    def _gather(self) -> Iterator[bool]:
        """Move new entries into the backlog; yields True if a commit may be tried, False if a retry is not due yet.

        Ends after `close`.
        """
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
                self._answer_soon(self._backlog.refused())
                return
            self._trouble, self._retry_wait_s = "", 0.0
            self._answer_soon(self._backlog.recorded(len(batch)), time.monotonic() - began_s)

    def _commit(self, batch: list[Entry]) -> str:
        """Record some entries in one transaction; returns the disk's error, or "" for success."""
        connection = self._connection
        try:
            self._execute("BEGIN IMMEDIATE")
            for entry in batch:
                if entry.statement:
                    self._execute(entry.statement, entry.values)
            self._execute("COMMIT")
        except sqlite3.OperationalError as error:
            if can_never_work(error):
                raise
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return str(error)
        return ""

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """Run one statement. Each has its own start time, so that many slow statements do not count as a hang."""
        self._busy_since_s = time.monotonic()
        self._connection.execute(statement, values)

    def _answer_soon(self, calls: list[Callback], took_s: float = -1.0) -> None:
        state = JournalState(self._trouble, self._backlog.n_bytes, bool(self._trouble) and self._backlog.is_full)
        self._call_soon(self._answer, calls, state, took_s)

    def _call_soon(self, call: Callable[..., None], *values: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *values)

    # -- on the loop ----------------------------------------------------------------------------------------------

    def _answer(self, calls: list[Callback], state: JournalState, took_s: float) -> None:
        self._set_state(state)
        if took_s >= 0.0:
            self.on_commit(took_s)
        for call in calls:
            call()

    def _check_hang(self) -> None:
        """Set `is_hanging` and call `on_hang` when a statement has run for longer than `hang_s`."""
        self._check_timer = self._loop.call_later(self._hang_s / 4, self._check_hang)
        since_s = self._busy_since_s
        if since_s and not self.state.is_hanging and time.monotonic() - since_s > self._hang_s:
            trouble = f"the disk has not answered for {self._hang_s:g} s"
            self._set_state(JournalState(trouble, self.state.waiting_bytes, is_hanging=True))
            self.on_hang()

    def _set_state(self, state: JournalState) -> None:
        before, self.state = self.state, state
        if str(before) != str(state):
            log = self._log.error if state.trouble else self._log.info
            log(f"journal: {state}", error=state.trouble, waiting_bytes=state.waiting_bytes)

    def _failed(self, error: BaseException) -> None:
        self.on_failure(error)
