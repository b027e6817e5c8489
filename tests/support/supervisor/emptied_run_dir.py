"""A run directory from which somebody removes everything while its server runs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

_DEADLINE_S = 60.0
_POLL_S = 0.01


def names_in(run_dir: Path) -> set[str]:
    """All that must be there: gang directories are used by a gang that starts, other names belong to commands or to a write."""
    names = {entry.name for entry in run_dir.iterdir() if entry.suffix != ".new"}
    return {name for name in names if not name.startswith(("gang-", "operator-"))}


async def empty(run_dir: Path) -> None:
    """Remove everything, and wait until it is there again."""
    before = names_in(run_dir)
    _remove_all(run_dir)
    async with asyncio.timeout(_DEADLINE_S):
        while not before <= names_in(run_dir):
            await asyncio.sleep(_POLL_S)


def _remove_all(run_dir: Path) -> None:
    for entry in list(run_dir.iterdir()):
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)  # the server may remove it at the same time
        else:
            entry.unlink(missing_ok=True)
