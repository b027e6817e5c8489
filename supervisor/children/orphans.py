"""Orphans, the children of a supervisor that was killed: a register on disk names them, and the next supervisor kills them.

The kernel kills children with their supervisor, but a child that hangs in a device driver may take seconds to die. Until then
its journal and its device memory must not be used again. The register holds the process id, the start time and the boot id of
the machine, so another process with the same id is never killed.
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

from supervisor.children.atomic_file import AtomicFile

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_POLL_S = 0.02
_START_TIME = 19  # in /proc/PID/stat, counted from the field after the name; `man proc` calls it (22)


class Registered(msgspec.Struct, frozen=True):
    """One child process."""

    name: str
    pid: int
    start_ticks: int  # since boot, by the kernel


class _Content(msgspec.Struct, frozen=True):
    boot: str
    children: list[Registered]


class ProcessRegister:
    """The living child processes of one supervisor, on disk as soon as the disk can be written."""

    def __init__(self, path: Path) -> None:
        self.file, self._boot = AtomicFile(path), _boot_id()
        self._children: list[Registered] = []

    def add(self, name: str, pid: int) -> None:
        """Register a process, and remove those that have ended.

        Raises: OSError when the kernel cannot be asked about it now (no descriptor is left); then it is not registered.
        """
        start_ticks = start_ticks_of(pid)
        self._children = [child for child in self._children if start_ticks_of(child.pid) == child.start_ticks]
        if start_ticks is not None:
            self._children.append(Registered(name, pid, start_ticks))
        self.file.write(msgspec.json.encode(_Content(self._boot, self._children)))


def kill_orphans(path: Path, deadline_s: float) -> tuple[list[Registered], list[Registered]]:
    """Kill the living children in a register that an earlier supervisor wrote, and wait until their deaths are proven.

    Returns (found alive, still alive after `deadline_s` seconds).
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_Content)
    except (OSError, msgspec.DecodeError):
        return [], []
    if content.boot != _boot_id():
        return [], []
    end_s = time.monotonic() + deadline_s
    found = [dying for child in content.children if (dying := _kill(child)) is not None]
    try:
        alive = [dying.child for dying in found if not dying.wait_dead(end_s - time.monotonic())]
    finally:
        for dying in found:
            if dying.pidfd >= 0:
                os.close(dying.pidfd)
    return [dying.child for dying in found], alive


def start_ticks_of(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none, or only a zombie.

    Raises: OSError when it cannot be read.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[_START_TIME])


@dataclass(frozen=True)
class _Dying:
    """An orphan whose death is not proven."""

    child: Registered
    pidfd: int  # -1 where there is none: then its start time is polled

    def wait_dead(self, timeout_s: float) -> bool:
        """Wait for its death. Returns False when it is still alive after `timeout_s` seconds."""
        if self.pidfd >= 0:
            return bool(select.select([self.pidfd], [], [], max(timeout_s, 0.0))[0])
        end_s = time.monotonic() + timeout_s
        while not _is_gone(self.child):
            if time.monotonic() > end_s:
                return False
            time.sleep(_POLL_S)
        return True


def _kill(child: Registered) -> _Dying | None:
    """Send SIGKILL to an orphan; None if it is dead. If the kernel cannot be asked, it counts as alive."""
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
            _log_not_killed(child, error)
        return _Dying(child, -1)
    if _is_gone(child):  # checked after the pidfd was opened: from then on it cannot mean another process
        os.close(pidfd)
        return None
    _send(child, signal.pidfd_send_signal, pidfd)
    return _Dying(child, pidfd)


def _send(child: Registered, send: Callable[[int, int], None], target: int) -> None:
    try:
        send(target, signal.SIGKILL)
    except ProcessLookupError:
        return
    except OSError as error:
        _log_not_killed(child, error)


def _log_not_killed(child: Registered, error: OSError) -> None:
    log = structlog.get_logger()
    log.error(
        "orphan not killed; it counts as alive until its death is proven", child=child.name, pid=child.pid, reason=str(error)
    )


def _is_gone(child: Registered) -> bool:
    try:
        return start_ticks_of(child.pid) != child.start_ticks
    except OSError:
        return False


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
