"""When answers were last forgotten, in a file beside theirs, so that the next incarnation takes none from before back."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog


class LastReset:
    """The file at `path`: a Unix time as text of one length, so that it can be written anew on a full disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, now_s: float) -> float:
        """When answers were last forgotten; `now_s` if the file does not say so, and from now on it does."""
        try:
            return float(self._path.read_bytes())
        except (OSError, ValueError):
            self.write(now_s)
            return now_s

    def write(self, now_s: float) -> None:
        """Answers are forgotten now."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, f"{now_s:026.9f}".encode(), 0)
            finally:
                os.close(fd)
        except OSError as error:
            structlog.get_logger().warning("the time of a reset could not be written", reason=str(error))
            with suppress(OSError):  # of a read-only disk
                self._path.unlink(missing_ok=True)  # then the next incarnation takes nothing back
