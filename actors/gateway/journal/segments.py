"""The files of one journal: their names, how they are read, and the lock on their folder.

journal-0/00000001-9f3c….log  00000002-….log  …        the number of the file, and the salt of its checksums
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

_NAME = re.compile(r"^(\d{8})-([0-9a-f]{16})\.log$")
_FOLDER = re.compile(r"^journal-(\d{1,4})$")
_READ_BYTES, _SECTOR_BYTES = 1 << 20, 4096
_LOCK_POLL_S = 0.02


@dataclass(eq=False)
class Segment:
    """One file. `living`: the requests whose newest REQUEST or ANSWER frame is in it; `growing`: those that are unfinished."""

    path: Path
    index: int
    salt: bytes
    n_bytes: int = 0
    living: set[int] = field(default_factory=set)
    growing: set[int] = field(default_factory=set)
    is_damaged: bool = False


def new_segment(folder: Path, index: int) -> Segment:
    """A file that does not exist yet, with a salt that nobody can guess."""
    salt = secrets.token_bytes(8)
    return Segment(folder / f"{index:08d}-{salt.hex()}.log", index, salt)


def segments_in(folder: Path) -> list[Segment]:
    """The files of a journal, oldest first. Files with other names are left alone."""
    found = []
    for entry in os.scandir(folder):
        match = _NAME.match(entry.name)
        if match is not None and entry.is_file():
            found.append(Segment(Path(entry.path), int(match[1]), bytes.fromhex(match[2]), entry.stat().st_size))
    return sorted(found, key=lambda segment: segment.index)


def unclaimed_folders(path: str, gateways: int) -> list[Path]:
    """The journals beside `path` that belong to no gateway any more, and that the gateway of `path` adopts.

    Journals are named journal-0, journal-1, ...; with N gateways number i adopts those of i + N, i + 2 N, ...
    `gateways` 0, or another name: none.
    """
    own = _FOLDER.match(Path(path).name)
    if own is None or not gateways:
        return []
    numbered = [(int(match[1]), entry) for entry in Path(path).parent.iterdir() if (match := _FOLDER.match(entry.name))]
    return [e for n, e in sorted(numbered) if n >= gateways and n % gateways == int(own[1]) and e.is_dir()]


def read_segment(segment: Segment) -> bytes:
    """All bytes of a file; sectors that the disk cannot read are zeros. Raises: OSError when it cannot be opened."""
    descriptor, data = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC), bytearray()
    try:
        size = os.fstat(descriptor).st_size
        while len(data) < size:
            part = _read_part(descriptor, len(data), size)
            if not part:
                break
            data += part
    finally:
        os.close(descriptor)
    return bytes(data)


def _read_part(descriptor: int, at: int, size: int) -> bytes:
    """The next bytes: many at once, and sector by sector where the disk reports an error."""
    try:
        return os.pread(descriptor, _READ_BYTES, at)
    except OSError:
        n_bytes = min(_SECTOR_BYTES - at % _SECTOR_BYTES, size - at)
        try:
            return os.pread(descriptor, n_bytes, at)
        except OSError:
            return bytes(n_bytes)


def lock_folder(folder: Path, wait_s: float) -> int:
    """Lock a journal's folder for this process; returns the descriptor that holds the lock. Blocks for at most `wait_s`.

    The kernel releases the lock when the process ends. Raises: BlockingIOError when another process holds it.
    """
    descriptor, until_s = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= until_s:
                os.close(descriptor)
                raise BlockingIOError(errno.EAGAIN, "another process holds this journal", str(folder)) from None
            time.sleep(_LOCK_POLL_S)
