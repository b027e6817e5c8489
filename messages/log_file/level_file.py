"""The level from which on standard error shows events, where it was changed while the server runs: a file in the run directory.

Processes look at it at most once a second, and only when they have something to write: a level that never changes costs
nothing else.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

LEVEL_FILE = "log_level"  # in the run directory
_LOOK_EVERY_S = 1.0
_LEVELS = logging.getLevelNamesMapping()


def write_level(run_dir: Path, level: str) -> None:
    """Set the level, such as "info", for all processes of a server. Raises: OSError."""
    temporary = run_dir / f"{LEVEL_FILE}.new"
    temporary.write_text(level)
    os.replace(temporary, run_dir / LEVEL_FILE)


class StreamLevel:
    """The level of standard error, as a number of the standard logging module. `run_dir`: None: the level never changes."""

    def __init__(self, level: int, run_dir: Path | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._level, self._now_s = level, now_s
        self._path = None if run_dir is None else run_dir / LEVEL_FILE
        self._looked_s = float("-inf")

    @property
    def number(self) -> int:
        """The level that counts now."""
        if self._path is not None and self._now_s() - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = self._now_s()
            self._level = _read(self._path, self._level)
        return self._level


def _read(path: Path, otherwise: int) -> int:
    try:
        return _LEVELS.get(path.read_text().strip().upper(), otherwise)
    except OSError:
        return otherwise
