"""Notices that another process begins to end, before its memory is freed.

Whatever ends a process ends its threads first, after some milliseconds. The last of them frees the memory, which takes 0.1 s
and more for some gigabytes, and only then are descriptors closed. So the earliest sign is the end of the first of two threads
that never end by themselves. It proves nothing: the process exists until its own pidfd says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

_PIDFD_THREAD = os.O_EXCL  # of a thread instead of a process; Linux 6.9
_LASTING = "ZMQbg/"  # threads of ZeroMQ, which sleep until there is something to do


class ThreadEnd:
    """Calls `on_end` once, on the event loop, when a lasting thread of a process ends. Older kernels, and processes without
    such threads, tell nothing."""

    def __init__(self, pid: int, on_end: Callable[[], None]) -> None:
        self._loop, self._on_end, self._pidfds = asyncio.get_running_loop(), on_end, list[int]()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                if _name_of(thread).startswith(_LASTING):
                    self._pidfds.append(os.pidfd_open(int(thread.name), _PIDFD_THREAD))
        for pidfd in self._pidfds:
            self._loop.add_reader(pidfd, self._ended)

    def close(self) -> None:
        """Notice nothing more."""
        for pidfd in self._pidfds:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        self._pidfds.clear()

    def _ended(self) -> None:
        if self._pidfds:
            self.close()
            self._on_end()


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:
        return ""
