"""Orphans, the children of a server whose supervisor and parent were both killed: the next server kills them.

They end by themselves when no supervisor comes back in time, but until then their journals and their device memory must not be
used again. The register of the killed supervisor names them.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from supervisor.children.register import Registered, read_register

_POLL_S = 0.02


def kill_orphans(path: Path, deadline_s: float) -> tuple[list[Registered], list[Registered]]:
    """Kill the living children in a register that an earlier supervisor wrote, and wait until their deaths are proven.

    Returns (found alive, still alive after `deadline_s` seconds).
    """
    return kill_processes(read_register(path), deadline_s)


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
