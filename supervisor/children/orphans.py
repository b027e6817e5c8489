"""Children of a supervisor that was killed: who they are is on disk, and the next supervisor proves their deaths.

The kernel kills children with their supervisor, but one that hangs in a device driver may take seconds, and nothing of the
dead may be used again before: two gateways on one journal, two ranks in one device's memory. A process is known by its id,
its start time and the boot of the machine, so that never another process is meant.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from supervisor.children.atomic_file import WholeFile

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_POLL_S = 0.02
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
    found = [dying for child in page.children if (dying := _kill(child)) is not None]
    try:
        alive = [dying.child for dying in found if not dying.wait_dead(end_s - time.monotonic())]
    finally:
        for dying in found:
            if dying.pidfd >= 0:
                os.close(dying.pidfd)
    return [dying.child for dying in found], alive


def start_ticks_of(pid: int) -> int | None:
    """When a process started; None when there is none, or only its remains.

    Raises: OSError when the kernel does not say.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[_START_TIME])


@dataclass(frozen=True)
class _Dying:
    """A child of the last server whose death is not proven."""

    child: Known
    pidfd: int  # -1 where there is none: then its start time is looked at again and again

    def wait_dead(self, timeout_s: float) -> bool:
        """Is it dead within this time?"""
        if self.pidfd >= 0:
            return bool(select.select([self.pidfd], [], [], max(timeout_s, 0.0))[0])
        end_s = time.monotonic() + timeout_s
        while not _is_gone(self.child):
            if time.monotonic() > end_s:
                return False
            time.sleep(_POLL_S)
        return True


def _kill(child: Known) -> _Dying | None:
    """SIGKILL; None when it is not there any more. What the kernel refuses to say counts as alive."""
    try:
        pidfd = os.pidfd_open(child.pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        if _is_gone(child):
            return None
        if error.errno == errno.ENOSYS:
            _send(child, os.kill, child.pid)
        else:
            _say_not_killed(child, error)
        return _Dying(child, -1)
    if _is_gone(child):  # looked at after the pidfd, which holds what it has found
        os.close(pidfd)
        return None
    _send(child, signal.pidfd_send_signal, pidfd)
    return _Dying(child, pidfd)


def _send(child: Known, send: Callable[[int, int], None], target: int) -> None:
    try:
        send(target, signal.SIGKILL)
    except ProcessLookupError:
        return
    except OSError as error:
        _say_not_killed(child, error)


def _say_not_killed(child: Known, error: OSError) -> None:
    log = structlog.get_logger()
    log.error("not killed; called alive until it is proven dead", child=child.name, pid=child.pid, reason=str(error))


def _is_gone(child: Known) -> bool:
    try:
        return start_ticks_of(child.pid) != child.start_ticks
    except OSError:
        return False


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
