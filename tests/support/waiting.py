"""Wait for a condition in an asyncio test, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DEADLINE_S = 60.0


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition is true. Real sockets and threads need real time, so this polls.

    Raises: TimeoutError after DEADLINE_S.
    """
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)
