"""Kept answers that outlive their process: they are written to a file now and then, and read from it at the start.

A file is written in a thread beside its final place. It takes that place on the event loop, and only if no answer was forgotten
meanwhile: what an operator has forgotten does not come back. What was kept after the last file is lost with the process, but
for what gateways have: they tell the next one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path

import structlog

from actors.cache_directory.answers.all_answers import AllAnswers, Answer, ForgottenCount, is_wanted
from actors.cache_directory.answers.answers_file import read_answers, write_answers
from actors.cache_directory.answers.last_reset import LastReset
from actors.pages.forgetting import Forgetting
from messages.caches.equal import KeptAnswer

_ANSWERS_A_TURN = 8  # that are taken from the file in one turn of the event loop: 0.3 ms each where a graph is large


class KeptOnDisk:
    """The file of `answers`. `now_s`: Unix time; `every_s`: between two files."""

    def __init__(self, answers: AllAnswers, path: Path, every_s: float, now_s: Callable[[], float]) -> None:
        self._answers, self._path, self._every_s, self._now_s = answers, path, every_s, now_s
        self._new_path = path.with_name(path.name + ".new")
        self._last_reset = LastReset(path.with_name(path.name + ".reset"))
        self._unread: deque[Answer] = deque()  # of the file, in the order in which they leave
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_forgotten = 0  # calls of `forget`
        self._written_s, self._n_written = now_s(), answers.n_changes
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Read the file. Its answers are found a little later, because each of them takes time."""
        loop = asyncio.get_running_loop()
        self._answers.equal.reset_s = await loop.run_in_executor(None, self._last_reset.read, self._now_s())
        found = await loop.run_in_executor(None, read_answers, self._path)
        self._unread.extend(answer for answer in found if self._answers.is_fresh(answer, self._now_s()))
        self._run(self._take_unread())

    def tick(self) -> None:
        """Begin to write a file if it is time, and there is something new."""
        is_due = self._now_s() >= self._written_s + self._every_s and self._answers.n_changes != self._n_written
        if is_due and not self._tasks:
            self._run(self._write())

    async def stop(self) -> None:
        """Write what is not written yet."""
        unread, self._unread = self._unread, deque()  # the tasks end soon
        await asyncio.gather(*self._tasks)
        self._unread = unread
        if self._answers.n_changes != self._n_written:
            await self._write()

    def forget(self, wanted: Forgetting) -> ForgottenCount:
        """Forget answers here and in the file; returns how many."""
        now_s = self._now_s()
        unread = [answer for answer in self._unread if is_wanted(answer, wanted, now_s)]
        self._unread = deque(answer for answer in self._unread if not is_wanted(answer, wanted, now_s))
        n_equal, n_similar = self._answers.forget(wanted, now_s)
        n_unread = sum(isinstance(answer, KeptAnswer) for answer in unread)
        self._n_forgotten += 1
        self._last_reset.write(now_s)
        self._n_written = -1
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:  # a disk that is read-only or has errors; another file takes its place as soon as it can
            self._log.error("forgotten answers are still in the file of kept answers", reason=str(error))
            self._written_s = -math.inf
        return ForgottenCount(n_equal + n_unread, n_similar + len(unread) - n_unread)

    async def _take_unread(self) -> None:
        while self._unread:
            before = self._answers.n_changes
            for _ in range(min(_ANSWERS_A_TURN, len(self._unread))):
                self._answers.restore(self._unread.popleft())
            self._n_written += self._answers.n_changes - before  # the file has them
            await asyncio.sleep(0)

    async def _write(self) -> None:
        answers, n_changes, n_forgotten = [*self._unread, *self._answers], self._answers.n_changes, self._n_forgotten
        try:
            await asyncio.get_running_loop().run_in_executor(None, write_answers, self._new_path, answers)
            if n_forgotten == self._n_forgotten:
                self._new_path.replace(self._path)
                self._n_written = n_changes
            else:
                self._new_path.unlink(missing_ok=True)
        except OSError as error:
            self._log.warning("kept answers could not be written", reason=str(error))
        self._written_s = self._now_s()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
