"""The journal's writer thread: group commit, retries while the disk refuses writes, and a watch for writes that hang.

    healthy --(the disk refuses a commit)--> refusing: retried after 0.05 s, 0.1 s, ... 1 s --(a commit succeeds)--> healthy
    healthy or refusing --(a write does not return)--> hanging --(it returns)--> healthy or refusing

While the disk refuses writes, `done` means "in this process's memory" for tokens and endings, up to the backlog's limit:
clients see them and schedulers are acknowledged. If the process is killed then, these records are lost. The requests themselves
were recorded before, so the next incarnation has their tokens computed again. New requests are never accepted from memory.
While a write hangs (a network disk, a device with errors) the thread can do nothing: the event loop notices it, and
everything that is not recorded waits.

Every error of the operating system is retried, if need be in a new file. After any other error the thread ends and calls
`on_failure`, because nothing can be recorded any more.
"""

from __future__ import annotations

import asyncio
import errno
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import structlog

from actors.gateway.journal.backlog import Backlog, Callback, PendingFrame
from actors.gateway.journal.segment_log import SegmentLog

_BATCH_ENTRIES = 4096
_POLL_S = 0.5  # between two looks for removed files while nothing is written
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0
_CLOSE_WAIT_S = 10.0


class JournalState(NamedTuple):
    """State of the journal. `trouble`: the disk's error, "" while it accepts writes."""

    trouble: str = ""
    waiting_bytes: int = 0  # in memory, callers answered, not recorded
    is_full: bool = False  # the limit of `waiting_bytes` is reached: callers wait
    is_hanging: bool = False  # a call of the system has neither succeeded nor failed for `hang_s`

    def __str__(self) -> str:
        if self.is_hanging:
            return "hangs"
        return "healthy" if not self.trouble else "refuses writes, buffer full" if self.is_full else "refuses writes"


class JournalWriter:
    """Owns the files from `start` to `close`. Callbacks run in order on the event loop that creates it."""

    def __init__(self, files: SegmentLog, limit_bytes: int, window_s: float, hang_s: float, name: str) -> None:
        self._files, self._window_s, self._hang_s = files, window_s, hang_s
        files.on_call = self._call_begins
        self._new: list[PendingFrame] = []  # put in this turn of the event loop
        self._queue: queue.SimpleQueue[list[PendingFrame] | None] = queue.SimpleQueue()
        self._backlog = Backlog(limit_bytes)
        self._log = structlog.get_logger().bind(journal=name)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._trouble = ""
        self._retry_at_s = self._retry_wait_s = 0.0
        self.state = JournalState()  # changes on the event loop only
        self.on_commit: Callable[[float], None] = lambda took_s: None  # seconds; this and the next four run on the event loop
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.on_hang: Callable[[], None] = lambda: None
        self.on_pinned: Callable[[list[int]], None] = lambda numbers: None  # requests that must be written again
        self.on_answered: Callable[[], None] = lambda: None  # the callbacks of one commit have been called
        self._busy_since_s = 0.0  # monotonic time at which the running call of the system began, 0: none runs
        self._check_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._check_hang()

    def put(self, entry: PendingFrame) -> None:
        """Record an entry soon. The thread is woken once for all entries of one turn of the event loop."""
        if not self._new:
            self._loop.call_soon(self._hand_over)
        self._new.append(entry)

    async def close(self) -> None:
        """Write what is left, if the disk accepts it within 10 s, and close the file."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._hand_over()
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join, _CLOSE_WAIT_S)
        if self._trouble:
            self._log.error(
                "journal closed, its last entries are not recorded", entries=len(self._backlog), error=self._trouble
            )
        self._files.close()

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
            wait_s = max(0.0, self._retry_at_s - time.monotonic()) if self._trouble else _POLL_S
            try:
                new = self._queue.get(timeout=wait_s)
            except queue.Empty:
                if self._trouble:
                    yield True
                else:
                    self._look()
                continue
            if self._window_s:
                time.sleep(self._window_s)
            batch: list[PendingFrame] = []
            while new is not None:
                batch += new
                if len(batch) >= _BATCH_ENTRIES:
                    break
                try:
                    new = self._queue.get_nowait()
                except queue.Empty:
                    break
            self._backlog.add(batch)
            yield new is None or not self._trouble or time.monotonic() >= self._retry_at_s
            if new is None:
                return

    def _look(self) -> None:
        """If somebody has removed files, write at once what lived in them."""
        if self._files.lost_files():
            self._queue.put([PendingFrame(None)])
        self._busy_since_s = 0.0

    def _record_all(self) -> None:
        while batch := self._backlog.first(_BATCH_ENTRIES):
            began_s = time.monotonic()
            n_recorded, trouble = self._commit(batch)
            self._busy_since_s = 0.0
            if trouble:
                self._retry_wait_s = min(max(2 * self._retry_wait_s, _FIRST_RETRY_S), _LONGEST_RETRY_S)
                self._retry_at_s = time.monotonic() + self._retry_wait_s
                self._trouble = trouble
                self._answer_soon(self._backlog.refused())
                return
            self._trouble, self._retry_wait_s = "", 0.0
            self._answer_soon(self._backlog.recorded(n_recorded), time.monotonic() - began_s)

    def _commit(self, batch: list[PendingFrame]) -> tuple[int, str]:
        """Write the first entries of a batch; returns how many, and the disk's error, "" for success."""
        try:
            self._files.append(batch)
        except OSError as error:
            if error.errno == errno.EFBIG and len(batch) > 1:  # fewer may fit where files must be small
                return self._commit(batch[: len(batch) // 2])
            return 0, str(error)
        if pinned := self._files.pinned():
            self._call_soon(lambda: self.on_pinned(pinned))
        return len(batch), ""

    def _call_begins(self) -> None:
        """Note the start of a system call. Each call has its own start time, so that many slow ones do not count as a hang."""
        self._busy_since_s = time.monotonic()

    def _answer_soon(self, calls: list[Callback], took_s: float = -1.0) -> None:
        state = JournalState(self._trouble, self._backlog.n_bytes, bool(self._trouble) and self._backlog.is_full)
        self._call_soon(self._answer, calls, state, took_s)

    def _call_soon(self, call: Callable[..., None], *values: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *values)

    # -- on the loop ----------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        if self._new:
            new, self._new = self._new, []
            self._queue.put(new)

    def _answer(self, calls: list[Callback], state: JournalState, took_s: float) -> None:
        self._set_state(state)
        if took_s >= 0.0:
            calls = [lambda: self.on_commit(took_s), *calls]
        for call in (*calls, self.on_answered):
            try:
                call()
            except Exception as error:  # the other callbacks are of other requests, which would wait for ever
                message = "a callback of the journal has raised an exception"
                self._loop.call_exception_handler({"message": message, "exception": error})

    def _check_hang(self) -> None:
        """Set `is_hanging` and call `on_hang` when a call of the system has run for longer than `hang_s`."""
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
