"""A file that one server at a time has locked.

The kernel releases the lock when the last process that holds the descriptor ends: children do not inherit it, but the parent of
the supervisor keeps a duplicate, so the lock survives a supervisor that is replaced.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_POLL_S = 0.05


class LockFile:
    """A lock that is held. `fd`: its descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def acquire(cls, path: Path, timeout_s: float = 0.0) -> LockFile:
        """Make the file if it is missing, and lock it.

        Raises: BlockingIOError when another server holds it for longer than `timeout_s`; OSError when there can be no lock.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(fd)
            except BlockingIOError:
                if time.monotonic() >= end_s:
                    os.close(fd)
                    raise
            except OSError:
                os.close(fd)
                raise
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Close the descriptor. The file stays locked while another process holds a duplicate of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def release(self) -> None:
        """Unlock it, also for every duplicate of the descriptor."""
        if self.fd >= 0:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            self.close()
