"""Waits until no process of a server is left, and kills those that do not end.

Children end before the supervisor, and the supervisor before its parent. Both of them hold the lock of the run directory, so
the kernel unlocks it when the last one has ended.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from supervisor.directories.orphans import kill_orphans, kill_processes
from supervisor.directories.register import ChildFacts, Registered, start_ticks_of
from supervisor.directories.run_dir_files import read_parent_pid, read_pid

_POLL_S = 0.02
_LAST_S = 10.0  # for the supervisor and its parent, once all children have ended
_DEATH_S = 10.0


class ServerEnd:
    """Watches the end of one server. Made before a stop is asked for: a temporary run directory is removed at the end.

    `killed`: what had to be killed, in words.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._last: list[Registered] = []
        self.killed: list[str] = []
        try:
            self._fd = os.open(run_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def close(self) -> None:
        """Stop watching."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def is_reached(self) -> bool:
        """True once no supervisor and no parent of this server is left."""
        if self._fd < 0:
            return True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # the next server may take it
        return True

    def wait(self, deadline_s: float) -> bool:
        """Wait until no process is left. Kill the supervisor and its parent if they are still there some seconds after the
        supervisor has given up its run directory. Returns False when `deadline_s` passed first."""
        end_s = time.monotonic() + deadline_s
        given_up_s = 0.0
        while not (self.is_reached and all(_is_gone(one) for one in self._last)):  # a process unlocks it just before its end
            now_s = time.monotonic()
            if found := supervisors_of(self._run_dir):
                self._last, given_up_s = found, now_s
            elif self._last and now_s - given_up_s > _LAST_S:
                killed, _ = kill_processes(self._last, _DEATH_S)
                self.killed += [f"the {one.name} (pid {one.pid})" for one in killed]
                given_up_s = time.monotonic()
            if now_s > end_s:
                return False
            time.sleep(_POLL_S)
        return True


def supervisors_of(run_dir: Path) -> list[Registered]:
    """The supervisor and its parent, as far as they live and the run directory names them."""
    pids = {"parent": read_parent_pid(run_dir), "supervisor": read_pid(run_dir)}
    ticks = {name: start_ticks_of(pid) for name, pid in pids.items() if pid}
    return [Registered(ChildFacts(name), pids[name] or 0, start) for name, start in ticks.items() if start is not None]


def _is_gone(process: Registered) -> bool:
    try:
        return process.is_gone
    except OSError:  # no descriptor is left: the lock has shown already that it has ended
        return True


def kill_server(run_dir: Path, deadline_s: float) -> bool:
    """kill -9 of every process of a server. Returns False when one is still alive after `deadline_s` seconds.

    A supervisor whose parent dies first becomes the next parent, so both are killed until nobody holds the lock.
    """
    end_s = time.monotonic() + deadline_s
    end = ServerEnd(run_dir)
    try:
        while not end.is_reached:
            if time.monotonic() > end_s:
                return False
            kill_processes(supervisors_of(run_dir), end_s - time.monotonic())
            time.sleep(_POLL_S)
    finally:
        end.close()
    _, alive = kill_orphans(run_dir / "children.json", max(end_s - time.monotonic(), 0.0))
    return not alive
