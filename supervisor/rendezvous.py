"""Where the ranks of one life of a gang meet, and which life each actor is in. Neither is ever used twice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path


class Incarnations:
    """Counts the lives of every actor, across restarts of the server too: a journal or a client that remembers an old life
    must never meet the same number again. One small file, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            known = {}
        self._newest = {str(k): v for k, v in known.items() if isinstance(v, int)} if isinstance(known, dict) else {}

    def next(self, *names: str) -> int:
        """One new life number for all of these: larger than any of them ever had."""
        number = max(self._newest.get(name, 0) for name in names) + 1
        self._newest.update(dict.fromkeys(names, number))
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self._newest))
        os.replace(fresh, self._path)
        return number


def open_gang_dir(run_dir: Path, replica: int, incarnation: int) -> str:
    """A fresh private directory for one life of a gang; those of its earlier lives, proven dead, are removed."""
    for old in run_dir.glob(f"gang-{replica}.*"):
        shutil.rmtree(old, ignore_errors=True)
    path = run_dir / f"gang-{replica}.{incarnation}"
    path.mkdir(mode=0o700)
    return str(path)
