"""What asyncio tests need of the event loop: to wait for a condition with a deadline, and to count its turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

DEADLINE_S = 60.0


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition is true. Real sockets and threads need real time, so this polls.

    Raises: TimeoutError after DEADLINE_S.
    """
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


class Turns:
    """`n`: turns of the event loop so far. Work that takes many turns lets others have theirs."""

    def __init__(self) -> None:
        self.n = 0

    async def count(self) -> None:
        """Count until this task is cancelled."""
        while True:
            self.n += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def count_turns() -> AsyncIterator[Turns]:
    """The turns that a task beside the caller's gets."""
    turns = Turns()
    task = asyncio.create_task(turns.count())
    try:
        yield turns
    finally:
        task.cancel()
