"""What the disk threads of one rank do: they copy pages between places of the host tier and places of the disk file.

A move that fails is counted, and its content is not found later; nothing is raised. A full disk makes it pause with writes, any
other error with everything: it closes the file, and tries again later. Each pause has one line in the log.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_workers.disk.disk_file import DiskFile, FileEnd, Unreadable
from gpu_workers.disk.place_tag import Content
from gpu_workers.vault.page_places import PagePlaces

REST_S = 10.0
_FIND_S = 0.05  # that one look at tags may take, because reads wait meanwhile
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Warn = Callable[..., Any]  # a method of a logger: the event, and its fields
Found = tuple[int, list[tuple[int, Content]]]  # the first place that was looked at; places with contents
OpenFile = Callable[[bool], DiskFile]  # True: this process has used the file before. Raises: OSError


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
    """`read`, `write` and `find` may be called on several threads at once; `clear` only while no other is under way. now_s: the
    monotonic clock."""

    def __init__(self, open_file: OpenFile, host: PagePlaces, warn: Warn, now_s: Callable[[], float]) -> None:
        self._open_file, self._host, self._warn, self._now_s = open_file, host, warn, now_s
        self._lock = threading.Lock()  # guards all below; is held while the file is opened and closed
        self._file: DiskFile | None = None
        self._n_users = 0  # threads that use the file
        self._must_close = False  # as soon as nobody uses the file
        self._pages: deque[np.ndarray] = deque()  # as many as there were threads at once
        self._off_until_s = self._full_until_s = -1.0
        self._is_full = False  # since the last write that has succeeded
        self._must_clear = self._has_opened = False
        self.counts = DiskCounts()

    def write(self, place: int, disk_place: int, content: Content) -> None:
        """Copy a place of the host tier to the disk, if it has this content."""
        if self._now_s() < self._full_until_s:
            self._count("full")
            return
        with self._using() as file, self._lent_page() as page:
            if file is None:
                return
            check = self._host.take(place, content.hash, page)
            if check is None:
                self._count("missing")
                return
            file.write(disk_place, content, check, page)
            self._is_full = False
            self._count("written")

    def read(self, disk_place: int, content_hash: int, land: Callable[[int, np.ndarray], bool]) -> bool:
        """Read a page, and give its checksum and bytes to `land`. Returns what that returns; False if the disk has not this
        content."""
        with self._using() as file, self._lent_page() as page:
            if file is None:
                return False
            found = file.read(disk_place, content_hash, page)
            if isinstance(found, Unreadable):
                self._count(found.value)
                if found is Unreadable.DAMAGED:
                    self._warn("a page on the disk is damaged", file=str(file.path), place=disk_place)
                return False
            self._count("read")
            return land(found, page)
        return False

    def find(self, before: int, most: int) -> Found | None:
        """What is at the places below `before`: see `DiskFile.find`. None if the disk cannot be read."""
        with self._using() as file:
            return file.find(before, most, _FIND_S, self._now_s) if file is not None else None
        return None

    def clear(self) -> bool:
        """Forget all contents, now or before the file is used again. Returns True if they are forgotten, also by the disk."""
        with self._lock:
            self._must_clear = True
            return self._opened() is not None

    def rest(self, reason: str) -> None:
        """Do nothing for a while."""
        self._off_until_s = self._now_s() + REST_S
        self._warn("the disk tier is off for a while", reason=reason, rest_s=REST_S)

    def close(self, end: FileEnd) -> None:
        """End with the file, which is removed if its contents should have been forgotten. Nobody may use it."""
        with self._lock:
            self._close(FileEnd.REMOVED if self._must_clear else end)

    @contextmanager
    def _using(self) -> Iterator[DiskFile | None]:
        """The open file; None while there is none. An error of the disk ends the block, and is noted."""
        with self._lock:
            file = self._opened()
            self._n_users += file is not None
        try:
            yield file
        except OSError as error:
            with self._lock:
                self._note_error(error)
        finally:
            if file is not None:
                with self._lock:
                    self._n_users -= 1
                    self._close_if_due()

    @contextmanager
    def _lent_page(self) -> Iterator[np.ndarray]:
        page = self._pages.pop() if self._pages else np.empty(self._host.page_bytes, np.uint8)
        try:
            yield page
        finally:
            self._pages.append(page)

    def _count(self, outcome: str) -> None:
        with self._lock:
            setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)

    # -- with the lock ----------------------------------------------------------------------------------------------

    def _opened(self) -> DiskFile | None:
        if self._now_s() < self._off_until_s or self._must_close:
            self.counts.late += 1
            return None
        if self._file is None:
            try:
                self._file = self._open_file(self._has_opened)
                self._has_opened = True
            except OSError as error:
                self._note_error(error)
                return None
        if self._must_clear:
            self._clear(self._file)
        return None if self._must_clear or self._must_close else self._file

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
        self._must_close = self._file is not None
        self._close_if_due()
        if self._now_s() >= self._off_until_s:  # else another thread has met it as well
            self.rest(str(error))

    def _close_if_due(self) -> None:
        if self._must_close and not self._n_users:
            self._close(FileEnd.LEFT)

    def _close(self, end: FileEnd) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close(end)
        self._file, self._must_close = None, False
