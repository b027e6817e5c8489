"""Where the ranks of one life of a gang meet, and which life each actor is in. Neither is ever used twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from supervisor.children.atomic_file import WholeFile


class Incarnations:
    """Counts the lives of every actor, across restarts of the server too: a journal or a client that remembers an old life
    must never meet the same number again. A disk that cannot be written does not stop the count."""

    def __init__(self, path: Path) -> None:
        self.file = WholeFile(path)
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            known = {}
        self._newest = {str(k): v for k, v in known.items() if isinstance(v, int)} if isinstance(known, dict) else {}

    def next(self, *names: str) -> int:
        """One new life number for all of these: larger than any of them ever had."""
        number = max(self._newest.get(name, 0) for name in names) + 1
        self._newest.update(dict.fromkeys(names, number))
        self.file.put(json.dumps(self._newest).encode())
        return number


def open_gang_dir(run_dir: Path, replica: int, incarnation: int) -> str:
    """A fresh private directory for one life of a gang; those of its earlier lives, proven dead, are removed.

    Raises: OSError when the disk has no room for it.
    """
    for old in run_dir.glob(f"gang-{replica}.*"):
        shutil.rmtree(old, ignore_errors=True)
    path = run_dir / f"gang-{replica}.{incarnation}"
    path.mkdir(mode=0o700)
    return str(path)
