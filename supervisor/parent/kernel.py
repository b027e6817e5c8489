"""What the parent asks of the kernel beyond the standard library: `prctl`, and the children of a process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct

from messages.outcomes import ExitCode

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PIDFD_INFO_BYTES = 64  # of `struct pidfd_info` in its first version (linux/pidfd.h): the mask is first, the exit status last
_PIDFD_INFO_EXIT = 8
_PIDFD_GET_INFO = 0xC000_FF0B | _PIDFD_INFO_BYTES << 16
_STOPPED = (b"T", b"t")
_STAT_EXIT_CODE = 49  # in /proc/PID/stat, counted from the field after the name; `man proc` calls it (52)


def adopt_descendants() -> None:
    """Become the subreaper: descendants whose own parent dies become children of this process. Raises: OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies. Raises: OSError."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ExitCode.FAULT)


def outlive_parent() -> None:
    """Let this process go on when its parent dies, as before `die_with`. Raises: OSError."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def children_of(parent: int) -> list[int]:
    """The children of a process, also those that it has not started itself."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and parent_of(int(entry)) == parent]


def parent_of(pid: int) -> int:
    """The parent of a process, also of one that has ended and was not reaped; 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def exit_code_of(pid: int, pidfd: int) -> int | None:
    """The return code of a process that has ended, as in `subprocess`; None if the kernel does not tell it.

    Until somebody reaps the dead process, the kernel tells it to every process of the same user. From Linux 6.15 on it also
    tells it afterwards, by `pidfd`, if that was opened before the reaping. `pidfd` -1: there is none.
    """
    status = _status_of_zombie(pid)
    if status is None and pidfd >= 0:
        status = _status_by_pidfd(pidfd)
    return None if status is None else os.waitstatus_to_exitcode(status)


def new_stops() -> dict[int, bool]:
    """The children of this process, by process id, that were stopped from outside (True) or have gone on (False) since the last
    call. What a debugger does is not told."""
    found: dict[int, bool] = {}
    with contextlib.suppress(ChildProcessError):  # it has none
        while (change := os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)) is not None:
            found[change.si_pid] = change.si_code == os.CLD_STOPPED
    return found


def exit_code_of_ending(pid: int) -> int | None:
    """The return code with which a process is about to end, as in `subprocess`; None if it is 0 or not known yet.

    The kernel notes it before it frees the resources of the process, which takes long if a driver holds some of them.
    """
    state, status = _state_and_status(pid)
    return os.waitstatus_to_exitcode(status) if status and state not in _STOPPED else None


def _status_of_zombie(pid: int) -> int | None:
    state, status = _state_and_status(pid)
    return status if state == b"Z" else None


def _state_and_status(pid: int) -> tuple[bytes, int]:
    """The state of a process, b"" if there is none, and its exit status as `waitpid` has it, 0 if it does not end yet. That of
    a stopped process is the signal that has stopped it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        return fields[0], int(fields[_STAT_EXIT_CODE])
    except (OSError, IndexError):
        return b"", 0


def _status_by_pidfd(pidfd: int) -> int | None:
    info = bytearray(_PIDFD_INFO_BYTES)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:  # an older kernel
        return None
    (mask,) = struct.unpack_from("Q", info, 0)
    return struct.unpack_from("i", info, _PIDFD_INFO_BYTES - 4)[0] if mask & _PIDFD_INFO_EXIT else None


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
