"""Kills in the middle of answers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from messages.ids import SUPERVISOR
from tests.support.real_server import RealServer
from tests.support.streams import DEADLINE_S

PARENT = "parent"  # of the supervisor


async def kill_when(server: RealServer, victims: tuple[str, ...], is_time: Callable[[], bool]) -> None:
    """Waits until is_time() is true, and kills these actors (or `PARENT`) with SIGKILL in turn. No victims: returns at once.

    Raises: TimeoutError if it is never true."""
    if not victims:
        return
    async with asyncio.timeout(3 * DEADLINE_S):
        while not is_time():
            await asyncio.sleep(0.005)
    for name in victims:
        if name in (SUPERVISOR, PARENT):
            await asyncio.to_thread(server.kill_supervisor if name == SUPERVISOR else server.kill_parent)
            continue
        await asyncio.to_thread(server.kill, name, signal.SIGKILL)
