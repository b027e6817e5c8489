"""The disk of a journal, which refuses writes, fails or hangs when a test says so."""

from __future__ import annotations

import errno
import os
import threading

from actors.gateway.journal.journal import Journal
from actors.gateway.journal.segment_log import SegmentLog

_LONGEST_WAIT_S = 60.0


class FaultyDisk:
    """Stands between a journal and its files. Tests set the attributes; the writer's thread reads them."""

    def __init__(self, files: SegmentLog) -> None:
        self._files, self._write = files, files._write
        self.trouble: BaseException | None = None  # raised by every write
        self.is_late = False  # raise it after half of the bytes
        self.attempts = 0  # writes begun
        self.gate = threading.Event()  # while it is not set, the writer waits before its next write
        self.gate.set()

    def write(self, data: bytes) -> None:
        """As the write that this replaces, but waits for the gate and raises `trouble`."""
        self.attempts += 1
        self._files.on_call()
        assert self.gate.wait(_LONGEST_WAIT_S), "the gate stayed shut"
        if self.trouble is None:
            self._write(data)
            return
        if self.is_late:
            self._write(data[: len(data) // 2])
        raise self.trouble.with_traceback(None)  # it shall not keep what the writes before this one had

    def refuse(self, number: int = errno.ENOSPC) -> None:
        """Refuse every write from now on, with this error of the system."""
        self.trouble = OSError(number, os.strerror(number))

    def recover(self) -> None:
        """Accept writes again."""
        self.trouble = None


def replace_disk(journal: Journal) -> FaultyDisk:
    """Replace the disk of a journal, before or after its start; returns the new one."""
    disk = FaultyDisk(journal._files)
    journal._files._write = disk.write
    return disk
