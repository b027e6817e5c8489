"""What asyncio tests need of the event loop: to wait for a condition with a deadline, to look at it in every turn, and to count
turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

DEADLINE_S = 60.0
_LONGEST_REST_S = 0.001  # a thread may change what is waited for, and not wake the loop


async def next_turn() -> None:
    """Return in the next turn of the event loop, as after `asyncio.sleep(0)`, but leave the core to others where no callback is
    ready: this process sleeps until a descriptor is, or the next timer is due. A test that looks at a condition in every turn
    sees the same turns, and takes no processor time while it waits for real time."""
    loop: Any = asyncio.get_running_loop()
    if asyncio.SelectorEventLoop is type(loop) and not loop._ready:
        next_timer_s = loop._scheduled[0].when() - loop.time() if loop._scheduled else _LONGEST_REST_S
        loop._selector.select(min(max(next_timer_s, 0.0), _LONGEST_REST_S))  # what is found is found again by the loop
    await asyncio.sleep(0)


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
