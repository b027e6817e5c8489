"""Open files that a process keeps in reserve, so that it notices when it can open no more, and has room for what cannot wait.

A process that can open no file accepts no connection, and libzmq ends it when another process connects to its inbox. So each
process opens some files that it does not need, before everything else: their numbers are low, so they fit under a limit that
somebody lowers later. When no other file can be opened (EMFILE, ENFILE) they are closed: new links to other actors and the
refusals of clients take their places. When there is room again they are opened again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from messages.descriptors.open_files import most_open_files

RESERVED_FILES = 16
_SAY_AGAIN_S = 60.0


def _open() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _count_open() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # there is no descriptor for it, or no /proc
        return 0


class FileReserve:
    """`n` files in reserve; 0: nothing is kept, and `check` looks at nothing.

    `open_file` opens one, and raises OSError when that is not possible. `count_open`: how many this process has open. `clock`
    returns seconds.
    """

    def __init__(
        self,
        n: int = 0,
        open_file: Callable[[], int] = _open,
        count_open: Callable[[], int] = _count_open,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._n, self._open_file, self._count_open, self._clock = n, open_file, count_open, clock
        self._kept: list[int] = []
        self._say_s = self._since_s = 0.0  # when to say it again; since when it is short
        self.is_short = False  # no file could be opened, and there is no room for the whole reserve yet
        self._fill()

    def check(self) -> bool:
        """Look whether this process can open a file, and give or take back the reserve. Returns `is_short`. Call it about twice
        a second."""
        if not self._n:
            return False
        was_short, now_s = self.is_short, self._clock()
        self.is_short = not (self._has_room() if was_short else self._can_open())
        if self.is_short and not was_short:
            self.close()
            self._since_s = self._say_s = now_s
        if self.is_short and now_s >= self._say_s:
            self._say_s = now_s + _SAY_AGAIN_S
            log, for_s = structlog.get_logger(), round(now_s - self._since_s)
            log.error("too few file descriptors are free: new connections are refused", limit=most_open_files(), for_s=for_s)
        elif was_short and not self.is_short:
            structlog.get_logger().warning("enough file descriptors are free again", after_s=round(now_s - self._since_s, 1))
        return self.is_short

    def close(self) -> None:
        """Close what is kept."""
        while self._kept:
            os.close(self._kept.pop())

    def _can_open(self) -> bool:
        """Can another file be opened, or is the limit one that this process may raise?"""
        for _ in range(2):
            with suppress(OSError):
                os.close(self._open_file())
                return self._fill()
            most_open_files()  # somebody has lowered the soft limit, which every process of a server raises at its start
        return False

    def _has_room(self) -> bool:
        """Is there room for the whole reserve and another file? What is free is not touched unless there is, because links and
        refusals need it at any moment."""
        if self._count_open() + self._n >= most_open_files():
            return False
        if self._fill() and self._can_open():
            return True
        self.close()
        return False

    def _fill(self) -> bool:
        with suppress(OSError):
            while len(self._kept) < self._n:
                self._kept.append(self._open_file())
        return len(self._kept) == self._n


class _ProcessReserve:
    """The reserve of this process."""

    reserve = FileReserve()


def hold_reserve() -> None:
    """Open the reserve of this process, which `process_reserve` returns from then on. To be called before other files are
    opened."""
    _ProcessReserve.reserve = FileReserve(RESERVED_FILES)


def process_reserve() -> FileReserve:
    """The reserve of this process; an empty one where nobody has called `hold_reserve`, as in tests of several actors in one
    process."""
    return _ProcessReserve.reserve
