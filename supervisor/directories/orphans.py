"""Orphans, the children of a server whose supervisor and parent were both killed: the next server kills them.

They end by themselves when no supervisor comes back in time, but until then their journals and their device memory must not be
used again. The register of the killed supervisor names them, and whoever listens on a socket of the run directory is asked
for its process id, because somebody may have damaged the register.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from supervisor.directories.register import ChildFacts, Registered, read_register, start_ticks_of

_POLL_S = 0.02
_CREDENTIALS = struct.Struct("3i")  # process id, user id, group id
_ENTRYPOINT = "supervisor.children.entrypoint"


def kill_orphans(path: Path, deadline_s: float) -> tuple[list[Registered], list[Registered]]:
    """Kill the living children in a register that an earlier supervisor wrote, and those that listen beside it, and wait until
    their deaths are proven.

    Returns (found alive, still alive after `deadline_s` seconds).
    """
    return kill_processes(orphans_of(path), deadline_s)


def orphans_of(path: Path) -> list[Registered]:
    """The children in a register, and those that listen on the sockets in its directory. Some of them may be dead."""
    found = {child.pid: child for child in _listening_children(path.parent)}
    return list((found | {child.pid: child for child in read_register(path)}).values())


def supervisor_at(run_dir: Path) -> int | None:
    """The process id of a supervisor that listens in this run directory; None if there is none."""
    pid = _listener(run_dir / "supervisor")
    return pid if pid and any("supervisor" in word for word in _command_line(pid)) else None


def _listening_children(run_dir: Path) -> list[Registered]:
    found: list[Registered] = []
    for entry in sorted(run_dir.iterdir()) if run_dir.is_dir() else []:
        pid = _listener(entry) if entry.is_socket() else 0
        words = _command_line(pid) if pid else []
        if _ENTRYPOINT in words[:-1] and (ticks := start_ticks_of(pid)) is not None:
            found.append(Registered(ChildFacts(words[words.index(_ENTRYPOINT) + 1]), pid, ticks))
    return found


def _listener(path: Path) -> int:
    """The process that listens on a unix stream socket, as the kernel has noted it; 0 if there is none, or another user's."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return 0
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid if uid == os.getuid() else 0


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def kill_processes(processes: Sequence[Registered], deadline_s: float) -> tuple[list[Registered], list[Registered]]:
    """Kill those of these processes that live, and wait until their deaths are proven; returns what `kill_orphans` does."""
    end_s = time.monotonic() + deadline_s
    found = [dying for child in processes if (dying := _kill(child)) is not None]
    try:
        alive = [dying.child for dying in found if not dying.wait_dead(end_s - time.monotonic())]
    finally:
        for dying in found:
            if dying.pidfd >= 0:
                os.close(dying.pidfd)
    return [dying.child for dying in found], alive


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
        return child.is_gone
    except OSError:
        return False
