"""Children of a supervisor that was killed: who they are is on disk, and the next supervisor proves their deaths.

The kernel kills children with their supervisor, but one that hangs in a device driver may take seconds, and nothing of the
dead may be used again before: two gateways on one journal, two ranks in one device's memory. A process is known by its id,
its start time and the boot of the machine, so that never another process is meant.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

import msgspec

from supervisor.whole_file import WholeFile

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 19  # in /proc/PID/stat, counted from the field after the name; `man proc` calls it (22)


class Known(msgspec.Struct, frozen=True):
    """One child process."""

    name: str
    pid: int
    start_ticks: int  # since boot, by the kernel


class _Page(msgspec.Struct, frozen=True):
    boot: str
    children: list[Known]


class BirthRegister:
    """The living children of one supervisor, on disk as soon as the disk can be written."""

    def __init__(self, path: Path) -> None:
        self.file, self._boot = WholeFile(path), _boot_id()
        self._children: list[Known] = []

    def born(self, name: str, pid: int) -> None:
        """A process exists; those that have gone meanwhile are left out.

        Raises: OSError when the kernel cannot be asked about it now (no descriptor is left); then it is not written down.
        """
        start_ticks = start_ticks_of(pid)
        self._children = [child for child in self._children if start_ticks_of(child.pid) == child.start_ticks]
        if start_ticks is not None:
            self._children.append(Known(name, pid, start_ticks))
        self.file.put(msgspec.json.encode(_Page(self._boot, self._children)))


def end_leftovers(path: Path, deadline_s: float) -> tuple[list[Known], list[Known]]:
    """Kill who is left of the supervisor that wrote this register, and wait for the proof: (found alive, still alive)."""
    try:
        page = msgspec.json.decode(path.read_bytes(), type=_Page)
    except (OSError, msgspec.DecodeError):
        return [], []
    if page.boot != _boot_id():
        return [], []
    end_s = time.monotonic() + deadline_s
    pidfds = [(child, pidfd) for child in page.children if (pidfd := _kill(child)) is not None]
    try:
        alive = [child for child, pidfd in pidfds if not _wait_dead(pidfd, end_s - time.monotonic())]
    finally:
        for _, pidfd in pidfds:
            os.close(pidfd)
    return [child for child, _ in pidfds], alive


def start_ticks_of(pid: int) -> int | None:
    """When a process started; None when there is none, or only its remains.

    Raises: OSError when the kernel does not say.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[_START_TIME])


def _kill(child: Known) -> int | None:
    """SIGKILL; returns the process as a pidfd, or None when it is not there any more."""
    try:
        pidfd = os.pidfd_open(child.pid)
    except OSError:
        return None
    if start_ticks_of(child.pid) != child.start_ticks:  # looked at after the pidfd, which holds what it has found
        os.close(pidfd)
        return None
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    return pidfd


def _wait_dead(pidfd: int, timeout_s: float) -> bool:
    return bool(select.select([pidfd], [], [], max(timeout_s, 0.0))[0])


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
