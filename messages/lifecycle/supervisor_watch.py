"""A child's view of its supervisor: it notices the death, sees to it that another one can come, and ends if none comes.

The parent of the supervisor starts the next one. If it is stopped from outside (SIGSTOP), nobody would: its watcher was the
supervisor that has died. The kernel has made this process the parent's child by then, so every child can tell it to continue.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_POLL_S = 1.0
_STOPPED = (b"T", b"t")  # states of a process in /proc/PID/stat: by a signal, by a debugger


class SupervisorWatch:
    """Notices the death of the supervisor. Unless a next one is watched within `orphan_s` seconds, `on_abandoned` is called."""

    def __init__(self, orphan_s: float, on_abandoned: Callable[[], None]) -> None:
        self._orphan_s, self._on_abandoned = orphan_s, on_abandoned
        self._pid, self._pidfd = 0, -1
        self._timer: asyncio.TimerHandle | None = None
        self._next_look: asyncio.TimerHandle | None = None  # at the process that starts the next supervisor

    def watch(self, pid: int) -> None:
        """Watch this process instead of the last one; 0: nobody."""
        self.close()
        self._pid = pid
        if not pid:
            return
        try:
            self._pidfd = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._pidfd, self._died)
        except ProcessLookupError:
            self._died()
        except OSError:  # no pidfds here, or no descriptor is left
            self._poll()

    def close(self) -> None:
        """Watch nobody."""
        for timer in (self._timer, self._next_look):
            if timer is not None:
                timer.cancel()
        self._timer = self._next_look = None
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _poll(self) -> None:
        try:
            os.kill(self._pid, 0)
        except OSError:
            self._died()
        else:
            self._timer = asyncio.get_running_loop().call_later(_POLL_S, self._poll)

    def _died(self) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(self._orphan_s, self._on_abandoned)
        self._look_at_parent()

    def _look_at_parent(self) -> None:
        continue_if_stopped(os.getppid())
        self._next_look = asyncio.get_running_loop().call_later(_POLL_S, self._look_at_parent)


def continue_if_stopped(pid: int) -> None:
    """Tell a process to continue if it was stopped from outside. Does nothing if there is none, or if it is another user's."""
    with suppress(OSError, IndexError):
        if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in _STOPPED:
            os.kill(pid, signal.SIGCONT)
