"""What the parent asks of the kernel beyond the standard library: `prctl`, and the children of a process."""

from __future__ import annotations

import os
import signal

_EXIT_BUG = 1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_EXIT_CODE = 49  # in /proc/PID/stat, counted from the field after the name; `man proc` calls it (52)


def adopt_descendants() -> None:
    """Become the subreaper: descendants whose own parent dies become children of this process. Raises: OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies. Raises: OSError."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_EXIT_BUG)


def outlive_parent() -> None:
    """End what `die_with` has begun. Raises: OSError."""
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


def exit_code_of(pid: int) -> int | None:
    """The return code of a process that has ended and was not reaped yet, as in `subprocess`; None if there is none.

    The kernel tells it to processes of the same user, not to the parent alone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        return os.waitstatus_to_exitcode(int(fields[_EXIT_CODE])) if fields[0] == b"Z" else None
    except (OSError, IndexError, ValueError):
        return None


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
