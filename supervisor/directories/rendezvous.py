"""The numbers of incarnations, and the directories where the ranks of a gang find each other. Neither is ever used twice."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from messages.ids import FIRST_SEAT
from supervisor.directories.atomic_file import AtomicFile
from supervisor.parent.memory_copy import read_newest


class Incarnations:
    """Counts the incarnations of every actor, also across restarts of the server, because journals and clients remember old
    numbers. If the disk refuses writes, the count goes on in memory."""

    def __init__(self, path: Path) -> None:
        self.file = AtomicFile(path)
        self._newest = read_newest(path, _decode) or {}

    def note(self, name: str, incarnation: int) -> None:
        """Note that this incarnation existed. It may be missing in the file, if the disk has refused the last writes."""
        self._newest[name] = max(self._newest.get(name, 0), incarnation)

    def next(self, *names: str) -> int:
        """One new incarnation number for all of these actors, larger than all their earlier numbers."""
        number = max(self._newest.get(name, 0) for name in names) + 1
        self._newest.update(dict.fromkeys(names, number))
        self.file.write(msgspec.json.encode(self._newest))
        return number


def _decode(content: bytes) -> dict[str, int] | None:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(content, type=dict[str, int])
    return None


def open_gang_dir(run_dir: Path, replica: int, seat: str, incarnation: int) -> str:
    """Make the private directory of one incarnation of a gang; returns its path. Directories of other gangs stay.

    Raises: OSError when the disk has no room for it.
    """
    path = run_dir / f"gang-{replica}{'' if seat == FIRST_SEAT else seat}.{incarnation}"
    path.mkdir(mode=0o700)
    return str(path)


def remove_gang_dir(path: str) -> None:
    """Remove the directory of a gang whose ranks are all proven dead. Files that cannot be removed stay."""
    shutil.rmtree(path, ignore_errors=True)
