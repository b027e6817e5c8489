"""Machine code of kernels in files, so that each kernel is compiled once on a machine and not at each start of a rank.

A file is named by a hash of all that decides the code: what LLVM is given, and its version. It is used only if its checksum is
right, and only in a folder to which nobody but this user can write, because the processor will run what is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

_MOST_FILES = 1024  # a model takes about thirty
_CHECKSUM_BYTES = 32


class CodeFiles:
    """The files in one folder, which is made when the first one is written. Several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, source: str) -> bytes | None:
        """The code that was kept for this source; None without a whole file."""
        name = _name_of(source)
        try:
            if not self._is_private():
                return None
            content = (self._folder / name).read_bytes()
        except OSError:
            return None
        code = content[_CHECKSUM_BYTES:]
        return code if content[:_CHECKSUM_BYTES] == _checksum(name, code) else None

    def keep(self, source: str, code: bytes) -> None:
        """Write the code of this source to its file. Nothing is kept where that cannot be done."""
        name = _name_of(source)
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private():
                return
            self._make_room()
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix="new-", delete=False) as file:
                try:
                    file.write(_checksum(name, code) + code)
                    file.close()
                    os.replace(file.name, self._folder / name)
                except OSError:
                    os.unlink(file.name)
                    raise

    def _is_private(self) -> bool:
        """Raises: OSError without the folder."""
        found = self._folder.stat()
        return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _make_room(self) -> None:
        """Delete the oldest half once there are too many files, as after many releases."""
        files = [entry for entry in os.scandir(self._folder) if entry.is_file(follow_symlinks=False)]
        if len(files) < _MOST_FILES:
            return
        for entry in sorted(files, key=lambda entry: entry.stat().st_mtime)[: _MOST_FILES // 2]:
            with contextlib.suppress(FileNotFoundError):  # another process makes room, too
                os.unlink(entry.path)


def _name_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _checksum(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + code).digest()
