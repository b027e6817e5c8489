"""A small file that is always replaced as a whole. While the disk refuses writes, the newest content waits in memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog

from supervisor.parent.memory_copy import copied_files, copy_of


class AtomicFile:
    """A file whose content outlives the supervisor.

    A full disk must not stop the supervisor from starting a child: a refused write is logged once and kept for `retry`.
    A copy in memory, if there is one, has the newest content all the same.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._copy = path, copy_of(path)
        self._pending: bytes | None = None  # content that the disk has refused

    @property
    def is_pending(self) -> bool:
        """True if the newest content is not in the file yet."""
        return self._pending is not None

    def write(self, content: bytes) -> None:
        """Replace the content now, or at a later `retry` when the disk refuses."""
        was_pending, self._pending = self.is_pending, content
        if self._copy is not None:
            with suppress(OSError):  # no memory
                self._copy.write(content)
        try:
            self._replace(content)
        except OSError as error:
            if not was_pending:
                structlog.get_logger().error("file not written, kept in memory", path=str(self._path), reason=str(error))

    def retry(self) -> None:
        """Write the pending content, if there is any."""
        if self._pending is not None:
            self.write(self._pending)

    def restore(self) -> None:
        """If there is a copy in memory and the file differs from it, write the file again."""
        if self._copy is None or self._copy.content is None or self._copy.is_on_disk:
            return
        if self._copy.is_foreign:
            structlog.get_logger().error("somebody has changed a file: it is written again", path=str(self._path))
        self.write(self._copy.content)

    def _replace(self, content: bytes) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(content)
        os.replace(temporary, self._path)
        if self._copy is not None:
            self._copy.note_on_disk()
        self._pending = None


_restored: dict[Path, AtomicFile] = {}  # kept, so that a refusal of the disk is logged once


def restore_files(folder: Path) -> None:
    """Compare the files of this folder with their copies in memory, and write those again that differ: somebody has removed or
    changed them, or the disk has refused them. To be called regularly."""
    for path in copied_files(folder):
        if path not in _restored:
            _restored[path] = AtomicFile(path)
        _restored[path].restore()
