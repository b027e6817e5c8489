"""A journal in a file, for tests that write it, close it and read it again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.gateway.journal.journal import Journal
from actors.gateway.requests.request import KEY_BITS
from tests.support.waiting import DEADLINE_S


async def written(journal: Journal) -> None:
    """Wait until everything put so far is recorded."""
    done = asyncio.get_running_loop().create_future()
    journal.step(b"", lambda: done.set_result(None))
    async with asyncio.timeout(DEADLINE_S):
        await done


def opened(path: Path) -> Journal:
    """A started journal in a new file, or in one without a readable request."""
    journal = Journal(str(path))
    assert journal.open() == []
    journal.start()
    return journal


def unwanted() -> None:
    """The `withdrawn` callback of requests that must be recorded."""
    raise AssertionError("withdrawn from a healthy disk")


def key(number: int) -> int:
    """The key of the first sequence of request `number`."""
    return number << KEY_BITS


def moved_aside(folder: Path) -> list[Path]:
    """The files in `folder` that were renamed because they were unreadable."""
    return [p for p in folder.iterdir() if ".unreadable-" in p.name and not p.name.endswith(("-wal", "-shm"))]
