"""The directory of the journals, which one server at a time holds, wherever its run directory is.

Two servers on one journal would each finish, and each delete, the requests that the other has accepted. The kernel releases
the lock when the process that holds it ends, and children do not inherit it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from messages.errors import ConfigError
from supervisor.children.run_dir import make_private

_LOCK = "journals.lock"  # not "lock": a run directory, which has one of that name, may be a state directory too


@contextlib.contextmanager
def hold_state_dir(path: Path) -> Iterator[Path]:
    """Make the directory if it is missing, and hold its lock inside of the `with` block.

    Raises: ConfigError when it is not private, when it cannot be locked, or when another server holds it.
    """
    make_private(path, "state_dir")
    try:
        lock_fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"state_dir: expected a directory in which a file can be made, got {error}") from None
    try:
        _lock(lock_fd, path)
        with contextlib.suppress(OSError):  # a full disk: the error of the next server names no pid
            os.ftruncate(lock_fd, 0)
            os.pwrite(lock_fd, str(os.getpid()).encode(), 0)
        yield path
    finally:
        os.close(lock_fd)


def _lock(lock_fd: int, path: Path) -> None:
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock_fd, 20, 0).decode("ascii", "replace") or "?"
        raise ConfigError(
            f"state_dir: expected no other server on the journals in {path}, got one that runs (pid {holder})"
        ) from None
    except OSError as error:
        raise ConfigError(f"state_dir: expected a file system with locks at {path}, got {error.strerror}") from None
