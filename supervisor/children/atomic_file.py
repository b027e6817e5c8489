"""A small file that is replaced as a whole; while the disk refuses, its newest content waits in memory and is written later."""

from __future__ import annotations

import os
from pathlib import Path

import structlog


class WholeFile:
    """What the supervisor must remember beyond its own life. A disk that is full must not stop it from bringing up a child, so
    a refusal is logged, once, and kept for `catch_up`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: bytes | None = None  # what the disk has refused

    @property
    def is_behind(self) -> bool:
        """Is the file older than what is known?"""
        return self._waiting is not None

    def put(self, content: bytes) -> None:
        """Replace the content, now or later."""
        was_behind, self._waiting = self.is_behind, content
        try:
            self._write()
        except OSError as error:
            if not was_behind:
                structlog.get_logger().error("not written, kept in memory", path=str(self._path), reason=str(error))

    def catch_up(self) -> None:
        """Try again to write what waits."""
        if self._waiting is not None:
            self.put(self._waiting)

    def _write(self) -> None:
        assert self._waiting is not None
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(self._waiting)
        os.replace(fresh, self._path)
        self._waiting = None
