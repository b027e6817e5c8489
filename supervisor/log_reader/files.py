"""Reads a log file from its oldest line on, and follows it through rotations, also while the server is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from messages.log_file.rotated_file import files_of

_CHUNK_BYTES = 1 << 20


class LogReader:
    """Reads the files of the log at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd, self._rest = -1, b""
        self._known = set[int]()  # numbers of the files that were there before there was one at `path`
        self._before = -1  # the file that was renamed last: a process may still write its last lines there

    def read_all(self) -> Iterator[bytes]:
        """All lines that there are, the oldest first. `read_new` goes on after them."""
        for path in reversed(files_of(self._path)[1:]):
            with suppress(FileNotFoundError):
                self._known.add(path.stat().st_ino)
                yield from path.read_bytes().splitlines()
        self._open()
        yield from self._lines(self._fd)

    def read_new(self) -> Iterator[bytes]:
        """The lines that have come since the last call."""
        if self._before >= 0:
            yield from self._whole(self._before)
            self._close_before()
        yield from self._lines(self._fd)
        if not self._is_renamed():
            return
        self._before, self._rest = self._fd, b""
        for path in reversed(self._newer_than(self._fd)):
            with suppress(FileNotFoundError):
                yield from path.read_bytes().splitlines()
        self._open()
        yield from self._lines(self._fd)

    def close(self) -> None:
        """Close what is open."""
        self._close_before()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _close_before(self) -> None:
        fd, self._before = self._before, -1  # first: an interrupt may come in between, and `close` after it
        if fd >= 0:
            os.close(fd)

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1

    def _is_renamed(self) -> bool:
        """True if the file at `path` is another one than that which is open."""
        try:
            now = os.stat(self._path)
        except OSError:
            return False
        return self._fd < 0 or not os.path.samestat(now, os.fstat(self._fd))

    def _newer_than(self, fd: int) -> list[Path]:
        """Of the renamed files those that are newer than the one that was open, the newest first."""
        read = self._known if fd < 0 else {os.fstat(fd).st_ino}
        newer = list[Path]()
        for path in files_of(self._path)[1:]:
            with suppress(FileNotFoundError):
                if path.stat().st_ino in read:
                    break
                newer.append(path)
        return newer

    def _lines(self, fd: int) -> Iterator[bytes]:
        """The whole lines that have come; the beginning of one is kept for the next call."""
        while fd >= 0 and (data := os.read(fd, _CHUNK_BYTES)):
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from filter(None, lines)

    @staticmethod
    def _whole(fd: int) -> Iterator[bytes]:
        while data := os.read(fd, _CHUNK_BYTES):
            yield from filter(None, data.split(b"\n"))
