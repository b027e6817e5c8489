"""What the parent asks of the kernel beyond the standard library: `prctl`, and the children of a process."""

from __future__ import annotations

import contextlib
import os
import signal

_EXIT_BUG = 1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_descendants() -> None:
    """Become the subreaper: descendants whose own parent dies become children of this process. Raises: OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies. Raises: OSError."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_EXIT_BUG)


def children_of(parent: int) -> list[int]:
    """The children of a process, also those that it has not started itself."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as stat:
                if int(stat.read().rpartition(b")")[2].split()[1]) == parent:
                    found.append(int(entry))
    return found


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
