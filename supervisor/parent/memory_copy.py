"""Copies of the small files of a run directory and a state directory, in memory that the supervisor's parent keeps for the next
supervisor.

While the disk refuses writes, the files are old. A supervisor that adopts children by an old register does not know those that
were started since, so it would start them a second time and use incarnation numbers twice. Somebody may also remove the files,
as programs that clean /tmp do, or overwrite them. The copy of a file always has its newest content.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from supervisor.parent.link import ParentLink

COPIED = (  # of a run directory
    "server.json",
    "server.next.json",
    "children.json",
    "incarnations.json",
    "supervisor.json",
    "served",
    "supervisor.pid",
    "parent.pid",
)
_HEADER = struct.Struct("<5Q")  # number of the write, the file's two stamps, length, checksum
_SLOT_BYTES = 64 << 20  # from the first slot to the second; what is not written takes no memory
_NO_FILE = (0, 0)
_T = TypeVar("_T")

_copies: dict[Path, dict[Path, MemoryCopy]] = {}  # by folder, by file


class MemoryCopy:
    """The copy of the file at `path` in the memory behind a descriptor.

    Two slots are written in turn, each with a checksum, so a death in the middle of a write costs that write alone. The stamps
    are the inode and the time of change of the file that the last successful write has made: if there is another file now,
    somebody else has written it, such as an older release that keeps no copies, and it counts instead, if it can be read.

    `content`: the newest one; None if nothing was ever written.
    """

    def __init__(self, fd: int, path: Path) -> None:
        self._fd, self._path = fd, path
        self._number, self._stamps, self.content = self._newest()
        self._is_written = False  # the newest content, into the file, by this process
        if self.content is None:
            self._stamps = _stamps_of(path)

    def write(self, content: bytes) -> None:
        """Replace the content. Raises: OSError when there is no memory."""
        self._number += 1
        self.content = content
        self._is_written = False
        body = struct.pack("<3Q", self._number, *self._stamps) + content
        header = _HEADER.pack(self._number, *self._stamps, len(content), zlib.crc32(body))
        os.pwrite(self._fd, header + content, self._number % 2 * _SLOT_BYTES)

    def note_on_disk(self) -> None:
        """The file has the newest content."""
        self._stamps = _stamps_of(self._path)
        self.write(self.content or b"")
        self._is_written = True

    @property
    def is_on_disk(self) -> bool:
        """True while the file is the one that this process has written last."""
        return self._is_written and _stamps_of(self._path) == self._stamps

    @property
    def is_foreign(self) -> bool:
        """True if somebody else has written the file."""
        return _stamps_of(self._path) not in (_NO_FILE, self._stamps)

    def _newest(self) -> tuple[int, tuple[int, int], bytes | None]:
        """(number, stamps, content) of the newest slot that is whole."""
        found: list[tuple[int, tuple[int, int], bytes | None]] = [(0, _NO_FILE, None)]
        for slot in range(2):
            header = os.pread(self._fd, _HEADER.size, slot * _SLOT_BYTES)
            if len(header) < _HEADER.size:
                continue
            number, inode, changed_ns, length, checksum = _HEADER.unpack(header)
            content = os.pread(self._fd, min(length, _SLOT_BYTES), slot * _SLOT_BYTES + _HEADER.size)
            if number and zlib.crc32(struct.pack("<3Q", number, inode, changed_ns) + content) == checksum:
                found.append((number, (inode, changed_ns), content))
        return max(found, key=lambda one: one[0])


def keep_copies(link: ParentLink, folder: Path, names: Iterable[str] = COPIED) -> None:
    """Keep copies of these files of a directory from now on: those that the parent has, or new ones. Without a parent: none."""
    if not link.has_parent:
        return
    for name in names:
        if name not in link.kept:
            link.keep(name, "", os.memfd_create(name))
        _copies.setdefault(folder, {})[folder / name] = MemoryCopy(link.kept[name].fd, folder / name)


def copy_of(path: Path) -> MemoryCopy | None:
    """The copy of a file, if one is kept."""
    return _copies.get(path.parent, {}).get(path)


def copied_files(folder: Path) -> list[Path]:
    """The files of this folder that have copies."""
    return list(_copies.get(folder, ()))


def read_newest(path: Path, decode: Callable[[bytes], _T | None]) -> _T | None:
    """The newest content of a file, from its copy or from the disk, as `decode` returns it. Content that `decode` cannot use
    (None) is skipped, because somebody may have written anything into the file. None when there is no usable content."""
    return next((found for content in _contents(path) if (found := decode(content)) is not None), None)


def _contents(path: Path) -> Iterator[bytes]:
    """What may be the content of a file, the most probable one first."""
    copy = copy_of(path)
    kept = copy.content if copy is not None else None
    if kept is not None and copy is not None and not copy.is_foreign:
        yield kept
    with suppress(OSError):
        yield path.read_bytes()
    if kept is not None:
        yield kept


def _stamps_of(path: Path) -> tuple[int, int]:
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return _NO_FILE
