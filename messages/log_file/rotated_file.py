"""A file of lines to which several processes write, of bounded size.

A line is part of one write to the end of the file, so lines never mix. A file that has grown to its limit is renamed, as are
the older ones: `server.log.1` is the newest of them.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from messages.access.private_file import APPEND, give_to_owner

LOG_FILE = "server.log"  # in the state directory
N_OLD = 3  # files that are kept beside the newest one
LEAST_BYTES = 1 << 20  # of all files together
_EXCESS = 2  # a file never grows beyond so many times its limit, also while a process that renames it is stopped


@dataclass(frozen=True)
class LogFile:
    """Where the log file is, and how many bytes it takes together with the older ones; 0 bytes: there is none."""

    path: str = ""
    most_bytes: int = 0


NO_LOG_FILE = LogFile()


class RotatedFile:
    """Lines in the file that `log_file` describes; all files together take `LEAST_BYTES` at least."""

    def __init__(self, log_file: LogFile) -> None:
        self._path = Path(log_file.path)
        self._most_bytes = max(log_file.most_bytes, LEAST_BYTES) // (N_OLD + 1)  # of one file
        self._is_torn = False

    def append(self, lines: bytes) -> bool:
        """Write lines, each with its newline. Returns False if there was no room for them in the file. Raises: OSError, such as
        that of a full disk, which may have taken a part of them."""
        fd = self._open()
        try:
            if (size := os.fstat(fd).st_size) and size + len(lines) > self._most_bytes and self._rotate(fd):
                os.close(fd)
                fd, size = -1, 0
                fd = self._open()
            if size > _EXCESS * self._most_bytes:
                return False
            self._write(fd, b"\n" + lines if self._is_torn else lines)
        finally:
            if fd >= 0:
                os.close(fd)
        return True

    def _write(self, fd: int, data: bytes) -> None:
        while data:
            n_written = os.write(fd, data)
            data = data[n_written:]
            self._is_torn = bool(data)

    def _open(self) -> int:
        fd = os.open(self._path, APPEND, 0o600)
        with suppress(OSError):
            give_to_owner(fd, self._path.parent)
        return fd

    def _rotate(self, fd: int) -> bool:
        """Rename the file behind this descriptor and the older ones. Returns False while another process does that."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with suppress(FileNotFoundError):
            if not os.path.samestat(os.stat(self._path), os.fstat(fd)):
                return True  # another process has renamed it
            for newer, older in reversed(list(zip(files_of(self._path), files_of(self._path)[1:], strict=False))):
                with suppress(FileNotFoundError):
                    newer.replace(older)
        return True


def files_of(path: Path) -> list[Path]:
    """The names of the files of the log at `path`, the newest one first."""
    return [path, *(Path(f"{path}.{number}") for number in range(1, N_OLD + 1))]
