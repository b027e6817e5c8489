"""The disk file of one rank: a header, then places of whole blocks, each with a tag and the bytes of one page.

The header names what the bytes mean (a fingerprint of model, format and settings) and a random generation, which every tag
repeats. A file of another fingerprint or with a damaged header is begun anew, with another generation: what was there before
is not found any more. The header also says whether the last process has ended in order. If it has not, its device may have
failed, and what it wrote may be damaged in ways that no checksum shows: then somebody must vouch for the file, or it is begun
anew.

The file grows with the places that are written, so a large one takes no room before it is needed. A lock keeps a second
process away, such as one that hangs: what it writes late could otherwise meet what its successor writes. Reads and writes go
past the page cache where the file system allows that, so that they do not push out what other programs keep there.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import numpy as np

from gpu_workers.disk.disk_calls import DiskCalls, OsCalls
from gpu_workers.disk.place_tag import BLOCK_BYTES, Content, names, page_of, place_bytes, read_content, read_tag, write_tag

_HEADER = struct.Struct("<8s32sQQQQ")  # magic, fingerprint, bytes of a page, number of places, generation, 1: in use
_SUM = struct.Struct("<I")
_MAGIC = b"tgdisk02"
_NOT_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)
FINGERPRINT_BYTES = 32


class Unreadable(Enum):
    """Why a place gives no page."""

    MISSING = "missing"  # another content, or none
    DAMAGED = "damaged"  # the checksum is wrong
    SHORT = "short"  # the disk gave a part of it


class FileEnd(Enum):
    """What a process that has used the file does with it."""

    LEFT = "left"  # as after its death
    IN_ORDER = "in order"  # the next process, also of a server that is started later, may trust what it has
    REMOVED = "removed"


def aligned_buffer(n_bytes: int) -> np.ndarray:
    """Memory that direct reads and writes accept. n_bytes: a multiple of `BLOCK_BYTES`."""
    return np.frombuffer(mmap.mmap(-1, n_bytes), np.uint8)


class DiskFile:
    """One open file. `read` and `write` may be called on several threads, which wait in them for as long as the disk does; all
    else by one, while no other uses the file."""

    def __init__(
        self,
        path: Path,
        fingerprint: bytes,
        page_bytes: int,
        n_places: int,
        calls: DiskCalls | None = None,
        *,
        is_vouched: bool = True,
    ) -> None:
        """Open the file, or begin it anew. fingerprint: `FINGERPRINT_BYTES`. is_vouched: what the last process has written is
        right, even if it has not ended in order. Raises: OSError; BlockingIOError when another process has it."""
        self.path, self.page_bytes, self.n_places = path, page_bytes, n_places
        self._place_bytes, self._calls = place_bytes(page_bytes), calls or OsCalls()
        self._buffers: deque[np.ndarray] = deque()  # for a place each; as many as there were threads at once
        self._facts = (_MAGIC, fingerprint, page_bytes, n_places)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor, self.is_direct = _open_locked(path)
        try:
            kept = self._read_header(is_vouched)
            self.is_new = kept is None
            self._generation = self._begin() if kept is None else kept
            if kept is not None:
                self._write_header(is_in_use=True)
        except OSError:
            os.close(self._descriptor)
            raise

    def write(self, place: int, content: Content, check: int, page: np.ndarray) -> None:
        """Write a page with the host tier's checksum of it. Raises: OSError, with the place empty or as it was; ENOSPC also
        when only a part was written."""
        with self._lent_buffer() as buffer:
            page_of(buffer, self.page_bytes)[:] = page
            write_tag(buffer, self.page_bytes, self._generation, place, content, check)
            self._write_whole(buffer, self._offset(place))

    def read(self, place: int, content_hash: int, page: np.ndarray) -> int | Unreadable:
        """Read the page of this content into `page`. Returns the host tier's checksum of it. Raises: OSError."""
        with self._lent_buffer() as buffer:
            if self._calls.read(self._descriptor, buffer, self._offset(place)) != self._place_bytes:
                is_past_end = os.fstat(self._descriptor).st_size < self._offset(place) + self._place_bytes
                return Unreadable.MISSING if is_past_end else Unreadable.SHORT
            if not names(buffer, self._generation, place, content_hash):
                return Unreadable.MISSING
            check = read_tag(buffer, self.page_bytes)
            if check is None:
                return Unreadable.DAMAGED
            page[:] = page_of(buffer, self.page_bytes)
            return check

    def find(self, before: int, most: int, limit_s: float, now_s: Callable[[], float]) -> tuple[int, list[tuple[int, Content]]]:
        """Look at the tags of places below `before`, from the last one to the first, until `most` contents are found or
        `limit_s` is over. Returns (the first place that was looked at, places with contents). Raises: OSError."""
        end_s, found = now_s() + limit_s, []
        n_written = -(-(os.fstat(self._descriptor).st_size - BLOCK_BYTES) // self._place_bytes)
        place = max(min(before, self.n_places, n_written), 0)
        block = aligned_buffer(BLOCK_BYTES)
        while place and len(found) < most:
            place -= 1
            if self._calls.read(self._descriptor, block, self._offset(place)) == BLOCK_BYTES:
                content = read_content(block, self._generation, place)
                found += [] if content is None else [(place, content)]
            if now_s() > end_s:
                break
        return place, found

    def clear(self) -> None:
        """Forget all contents, and give their room back. Raises: OSError, with the contents forgotten by this process."""
        self._generation = self._begin()

    def close(self, end: FileEnd = FileEnd.LEFT) -> None:
        """Let another process have the file. Raises: OSError."""
        try:
            if end is FileEnd.REMOVED:
                self.path.unlink(missing_ok=True)
            elif end is FileEnd.IN_ORDER:
                self._write_header(is_in_use=False)
        finally:
            os.close(self._descriptor)

    @contextmanager
    def _lent_buffer(self) -> Iterator[np.ndarray]:
        buffer = self._buffers.pop() if self._buffers else aligned_buffer(self._place_bytes)
        try:
            yield buffer
        finally:
            self._buffers.append(buffer)

    def _offset(self, place: int) -> int:
        if not 0 <= place < self.n_places:
            raise ValueError(f"place: expected 0 to {self.n_places - 1}, got {place}")
        return BLOCK_BYTES + place * self._place_bytes

    def _read_header(self, is_vouched: bool) -> int | None:
        """The generation of a file that is like this one; None for any other file, or if what it has may be wrong."""
        block = aligned_buffer(BLOCK_BYTES)
        if self._calls.read(self._descriptor, block, 0) != BLOCK_BYTES:
            return None
        (total,) = _SUM.unpack_from(block.data, _HEADER.size)
        *facts, generation, is_in_use = _HEADER.unpack_from(block.data)
        is_whole = tuple(facts) == self._facts and total == zlib.crc32(block[: _HEADER.size].data)
        return generation if is_whole and (is_vouched or not is_in_use) else None

    def _begin(self) -> int:
        """Make the file empty, with a new generation, which is returned."""
        self._generation = int.from_bytes(os.urandom(8), "little") | 1  # never 0
        os.ftruncate(self._descriptor, 0)
        self._write_header(is_in_use=True)
        return self._generation

    def _write_header(self, *, is_in_use: bool) -> None:
        header = _HEADER.pack(*self._facts, self._generation, is_in_use)
        block = aligned_buffer(BLOCK_BYTES)
        whole = header + _SUM.pack(zlib.crc32(header))
        block[: len(whole)] = np.frombuffer(whole, np.uint8)
        try:
            self._write_whole(block, 0)
        except OSError as error:
            if not self.is_direct or error.errno not in _NOT_DIRECT:
                raise
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)  # some file systems notice only now
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            self.is_direct = False
            self._write_whole(block, 0)

    def _write_whole(self, buffer: np.ndarray, offset: int) -> None:
        if self._calls.write(self._descriptor, buffer, offset) != len(buffer):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _open_locked(path: Path) -> tuple[int, bool]:
    """(descriptor, True if it goes past the page cache) of the locked file at this path. Raises: OSError."""
    while True:
        descriptor, is_direct = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor, is_direct
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last process has removed it meanwhile


def _open(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600), True
    except OSError as error:
        if error.errno not in _NOT_DIRECT:
            raise
    return os.open(path, flags, 0o600), False
