"""kill -9 of the parent at bad moments: orders go on, rolling restarts go on, and streams notice nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from messages.client import AsyncClient
from supervisor.directories.run_dir_files import read_end
from supervisor.operator.ending import ServerEnd
from tests.support.real_server import WITH_SPARES, RealServer
from tests.support.streams import DEADLINE_S, N_STREAMS, Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")
N_KILLS = 6


@pytest.fixture
def server() -> Iterator[RealServer]:
    server = RealServer(*WITH_SPARES, *FLAGS)
    try:
        yield server
    finally:
        server.clean()


def wait_end(server: RealServer) -> int:
    """The exit status of a server that was told to end, and of which no process is left."""
    end = ServerEnd(server.run_dir)
    assert end.wait(DEADLINE_S), server.log()
    end.close()
    assert end.killed == []
    return read_end(server.run_dir)[0]


def test_a_stop_reaches_a_supervisor_that_becomes_the_parent(server: RealServer) -> None:
    first = server.kill_parent()
    os.kill(server.supervisor_pid, signal.SIGTERM)  # it goes on as the parent, whose supervisor gets this order
    assert wait_end(server) == 0
    assert server.process.pid == first
    assert server.process.wait(DEADLINE_S) == -signal.SIGKILL


async def test_a_drain_goes_on_when_the_parent_is_killed(server: RealServer) -> None:
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(20)
        os.kill(server.parent_pid, signal.SIGTERM)
        await asyncio.to_thread(server.wait_for, lambda report: report.state == "draining")
        await asyncio.to_thread(server.kill_parent)
        streams.assert_cut()
        await work
        streams.check()
    assert await asyncio.to_thread(wait_end, server) == 0, server.log()


@pytest.mark.parametrize("kill", [RealServer.kill_parent, RealServer.kill_supervisor])
async def test_a_rolling_restart_goes_on_when_one_above_the_actors_is_killed(
    server: RealServer, kill: Callable[[RealServer], object]
) -> None:
    before = {child.name: child.incarnation for child in (await asyncio.to_thread(server.status)).children}
    command = [sys.executable, "-m", "supervisor", "restart", "--rolling", "--run-dir", str(server.run_dir)]
    process = await asyncio.to_thread(subprocess.Popen, command, stdout=subprocess.DEVNULL)
    for n_done in (2, 4):
        await asyncio.to_thread(server.wait_for, lambda r, n=n_done: r.restart is not None and len(r.restart.done) >= n)
        await asyncio.to_thread(kill, server)
    assert await asyncio.to_thread(process.wait, 300.0) == 0, server.log()
    report = await asyncio.to_thread(server.wait_serving)
    assert all(child.incarnation > before[child.name] for child in report.children)
    assert await asyncio.to_thread(server.stop) == 0, server.log()


async def test_streams_notice_no_series_of_deaths_above_the_actors(server: RealServer) -> None:
    """Parent and supervisor die in turn, at any moment after the other one is replaced; or the parent dies as soon as it has
    replaced the supervisor, which adopts nobody yet."""
    before = {child.name: child.incarnation for child in (await asyncio.to_thread(server.status)).children}
    chance = random.Random(1)
    async with AsyncClient(server.zeromq) as client:
        for salt in range(N_KILLS):
            streams = Streams(client, salt=salt)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await streams.wait_running(10)
            if salt % 3 < 2:
                killed = await asyncio.to_thread(server.kill_supervisor)
                while server.supervisor_pid == killed:
                    await asyncio.sleep(0)
                if salt % 3 == 0:
                    await asyncio.to_thread(server.wait_supervisor, killed)
            if salt % 3 > 0:
                killed = await asyncio.to_thread(server.kill_parent)
                await asyncio.to_thread(server.wait_parent, killed)
            await asyncio.wait([work], timeout=chance.random())
            await work
            streams.check()
    report = await asyncio.to_thread(server.wait_serving)
    assert {child.name: child.incarnation for child in report.children} == before
    assert report.parent_deaths == N_KILLS * 2 // 3
    assert await asyncio.to_thread(server.stop) == 0, server.log()
