"""A disk that is full for one file."""

from __future__ import annotations

from pathlib import Path


def fill_disk(path: Path) -> Path:
    """Every write of this file meets a full disk from now on, until the path that is returned has been removed."""
    full = path.with_suffix(".new")
    full.unlink(missing_ok=True)
    full.symlink_to("/dev/full")
    return full
