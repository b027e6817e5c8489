"""Notices that another process begins to end, before its memory is freed.

Whatever ends a process ends its threads first, after some milliseconds. The last of them frees the memory, which takes 0.1 s
and more for some gigabytes, and only then are descriptors closed. So the end of a thread that never ends by itself is the
earliest sign. It proves nothing: the process exists until its own pidfd says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

_PIDFD_THREAD = os.O_EXCL  # of a thread instead of a process; Linux 6.9
_LASTING = "ZMQbg/IO"  # a thread of ZeroMQ, which sleeps until there is mail: it is hardly ever the last one


class ThreadEnd:
    """Calls `on_end` once, on the event loop, when a lasting thread of a process ends. Older kernels, and processes without
    such a thread, tell nothing."""

    def __init__(self, pid: int, on_end: Callable[[], None]) -> None:
        self._loop, self._on_end, self._pidfd = asyncio.get_running_loop(), on_end, -1
        with contextlib.suppress(OSError, StopIteration):
            thread = next(task for task in Path(f"/proc/{pid}/task").iterdir() if _name_of(task).startswith(_LASTING))
            self._pidfd = os.pidfd_open(int(thread.name), _PIDFD_THREAD)
            self._loop.add_reader(self._pidfd, self._ended)

    def close(self) -> None:
        """Notice nothing more."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _ended(self) -> None:
        self.close()
        self._on_end()


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:
        return ""
