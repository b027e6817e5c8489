"""kill -9 of the supervisor while streams run: nobody is left behind, and the next start on the same place goes on."""

from __future__ import annotations

import asyncio
import os
import select
import signal

import pytest

from messages.client import AsyncClient
from tests.support.real_server import RealServer
from tests.support.streams import DEADLINE_S, N_STREAMS, Streams

pytestmark = pytest.mark.timeout(180)


def descendants(pid: int) -> set[int]:
    """Children of a process: lives and spares."""
    listed = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return {child for child in listed if _parent(child) == pid}


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return -1


async def test_streams_go_on_after_a_killed_supervisor_is_started_again() -> None:
    flags = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")
    server = await asyncio.to_thread(RealServer, *flags)
    try:
        async with AsyncClient(server.front) as client:
            streams = Streams(client)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await streams.wait_running(20)
            pidfds = [os.pidfd_open(pid) for pid in descendants(server.process.pid)]
            assert len(pidfds) >= 5
            frozen = await asyncio.to_thread(server.child, "worker/0.0")
            os.kill(int(frozen.pid), signal.SIGSTOP)  # one that could not end itself
            old_pid = server.process.pid
            server.process.kill()
            await asyncio.to_thread(server.process.wait, DEADLINE_S)
            await asyncio.to_thread(server.start_again)
            for pidfd in pidfds:
                assert select.select([pidfd], [], [], 0.0)[0], "a child of the killed supervisor still lives"
                os.close(pidfd)
            await work
            streams.check()
        assert "the last server here was killed" in server.log()
        assert f"pid={old_pid}" in server.log()
        assert await asyncio.to_thread(server.stop) == 0
    finally:
        server.clean()
