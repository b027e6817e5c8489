"""Each process of a real server is stopped (SIGSTOP) under load and continues: answers are right, and who was well stays."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from messages.client import AsyncClient
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import N_STREAMS, Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CHILDREN = ("gateway/0", "scheduler/0", "worker/0.0", "cache_directory/0", "speculation/0")
MODEL = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")


def incarnations(server: RealServer) -> dict[str, int]:
    return {child.name: int(child.incarnation) for child in server.status().children}


async def streams_around_a_pause(server: RealServer, salt: int, pids: list[int], seconds: float) -> None:
    """Streams run, processes are paused in the middle, and all of the streams end with the right tokens."""
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client, salt)
        work = [asyncio.create_task(streams.follow(index)) for index in range(N_STREAMS)]
        await streams.wait_running(5)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        for pid in pids:
            with suppress(ProcessLookupError):  # the supervisor has replaced it
                os.kill(pid, signal.SIGCONT)
        await asyncio.gather(*work)
        streams.check()


@pytest.mark.parametrize("seconds", [1.0, 10.0])
def test_children_that_are_paused_lose_nothing(seconds: float) -> None:
    """A child that pauses for too long is replaced; a shorter pause it survives itself."""
    with real_server(*WITH_SPARES, *MODEL) as server:
        for salt, name in enumerate(("gateway/0", "scheduler/0", "worker/0.0")):
            asyncio.run(streams_around_a_pause(server, salt, [int(server.child(name).pid)], seconds))
            server.wait_serving()
        everybody = [int(server.child(name).pid) for name in CHILDREN]
        asyncio.run(streams_around_a_pause(server, 3, everybody, seconds))


@pytest.mark.parametrize("seconds", [2.0, 12.0])
def test_a_supervisor_that_was_paused_kills_nobody(seconds: float) -> None:
    with real_server(*WITH_SPARES, *MODEL) as server:
        before = incarnations(server)
        asyncio.run(streams_around_a_pause(server, 1, [server.supervisor_pid], seconds))
        asyncio.run(asyncio.sleep(7.0))  # longer than any child may be silent
        assert incarnations(server) == before, server.log()
