"""What the disk thread of one rank does: it copies pages between places of the host tier and places of the disk file.

A move that fails is counted, and its content is not found later; nothing is raised. A full disk makes it pause with writes, any
other error with everything: it closes the file, and tries again later. Each pause has one line in the log.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_workers.disk.disk_file import DiskFile, Unreadable
from gpu_workers.vault.page_places import PagePlaces

REST_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
read_clock = time.monotonic
Warn = Callable[..., Any]  # a method of a logger: the event, and its fields


@dataclass
class DiskCounts:
    """Pages since the start of the process."""

    written: int = 0
    read: int = 0
    missing: int = 0  # not in the file, or not in the host tier any more when they were to be written
    damaged: int = 0  # a wrong checksum
    short: int = 0  # the disk gave a part
    full: int = 0  # not written, for want of room
    errors: int = 0  # of the disk
    late: int = 0  # not moved, because the disk did not answer in time or was off

    @property
    def failed(self) -> int:
        """Pages that the disk has failed to move."""
        return self.damaged + self.short + self.full + self.errors + self.late


class DiskWork:
    """Used by one thread. open_file: opens the file, or raises OSError. now_s: the monotonic clock."""

    def __init__(self, open_file: Callable[[], DiskFile], host: PagePlaces, warn: Warn, now_s: Callable[[], float]) -> None:
        self._open_file, self._host, self._warn, self._now_s = open_file, host, warn, now_s
        self._file: DiskFile | None = None
        self._page = np.empty(host.page_bytes, np.uint8)
        self._off_until_s = self._full_until_s = -1.0
        self._is_full = False  # since the last write that has succeeded
        self._must_clear = False
        self.counts = DiskCounts()

    def write(self, place: int, disk_place: int, content_hash: int) -> None:
        """Copy a place of the host tier to the disk, if it has this content."""
        if self._now_s() < self._full_until_s:
            self.counts.full += 1
            return
        if (file := self._opened()) is None:
            return
        check = self._host.take(place, content_hash, self._page)
        if check is None:
            self.counts.missing += 1
            return
        try:
            file.write(disk_place, content_hash, check, self._page)
        except OSError as error:
            self._note_error(error)
            return
        self._is_full = False
        self.counts.written += 1

    def read(self, disk_place: int, content_hash: int, land: Callable[[int, np.ndarray], None]) -> bool:
        """Read a page, and give its checksum and bytes to `land`. Returns False if the disk has not this content."""
        if (file := self._opened()) is None:
            return False
        try:
            found = file.read(disk_place, content_hash, self._page)
        except OSError as error:
            self._note_error(error)
            return False
        match found:
            case Unreadable.MISSING:
                self.counts.missing += 1
            case Unreadable.DAMAGED:
                self.counts.damaged += 1
                self._warn("a page on the disk is damaged", file=str(file.path), place=disk_place)
            case Unreadable.SHORT:
                self.counts.short += 1
            case check:
                land(check, self._page)
                self.counts.read += 1
                return True
        return False

    def clear(self) -> None:
        """Forget all contents, now or before the file is used again."""
        self._must_clear = True
        if self._file is not None:
            self._clear(self._file)

    def rest(self, reason: str) -> None:
        """Do nothing for a while."""
        self._off_until_s = self._now_s() + REST_S
        self._warn("the disk tier is off for a while", reason=reason, rest_s=REST_S)

    def close(self, is_removed: bool) -> None:
        """End with the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close(is_removed)
            self._file = None

    def _opened(self) -> DiskFile | None:
        if self._file is None or self._now_s() < self._off_until_s:
            if self._now_s() < self._off_until_s:
                self.counts.late += 1
                return None
            try:
                self._file = self._open_file()
            except OSError as error:
                self._note_error(error)
                return None
        if self._must_clear:
            self._clear(self._file)
        return self._file

    def _clear(self, file: DiskFile) -> None:
        try:
            file.clear()
            self._must_clear = False
        except OSError as error:
            self._note_error(error)

    def _note_error(self, error: OSError) -> None:
        if error.errno in _FULL and self._file is not None and not self._must_clear:
            self.counts.full += 1
            self._full_until_s = self._now_s() + REST_S
            if not self._is_full:
                self._warn("no room on the disk for evicted pages", file=str(self._file.path), error=str(error))
            self._is_full = True
            return
        self.counts.errors += 1
        self.close(is_removed=False)
        self.rest(str(error))
