"""The numbers of incarnations, and the directories where the ranks of a gang find each other. Neither is ever used twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from messages.ids import FIRST_SEAT
from supervisor.children.atomic_file import AtomicFile
from supervisor.parent.memory_copy import read_newest


class Incarnations:
    """Counts the incarnations of every actor, also across restarts of the server, because journals and clients remember old
    numbers. If the disk refuses writes, the count goes on in memory."""

    def __init__(self, path: Path) -> None:
        self.file = AtomicFile(path)
        try:
            known = json.loads(read_newest(path))
        except (OSError, ValueError):
            known = {}
        self._newest = {str(k): v for k, v in known.items() if isinstance(v, int)} if isinstance(known, dict) else {}

    def note(self, name: str, incarnation: int) -> None:
        """This incarnation existed. It may be missing in the file, if the disk has refused the last writes."""
        self._newest[name] = max(self._newest.get(name, 0), incarnation)

    def next(self, *names: str) -> int:
        """One new incarnation number for all of these actors, larger than all their earlier numbers."""
        number = max(self._newest.get(name, 0) for name in names) + 1
        self._newest.update(dict.fromkeys(names, number))
        self.file.write(json.dumps(self._newest).encode())
        return number


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
