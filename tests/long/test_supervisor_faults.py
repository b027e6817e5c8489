"""A supervisor that freezes, and one that is killed in a rolling restart: nobody notices, and the work goes on."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.streams import N_STREAMS, Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")


@pytest.fixture
def server() -> Iterator[RealServer]:
    with real_server(*FLAGS) as server:
        yield server


async def test_a_frozen_supervisor_is_replaced_and_streams_do_not_notice(server: RealServer) -> None:
    before = {child.name: child.incarnation for child in (await asyncio.to_thread(server.status)).children}
    async with AsyncClient(server.front) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(20)
        frozen = await asyncio.to_thread(server.kill_supervisor, signal.SIGSTOP)
        await work
        streams.check()
    report = await asyncio.to_thread(server.wait_supervisor, frozen)
    assert {child.name: child.incarnation for child in report.children} == before
    assert "has not been heard for" in server.log()


async def test_a_rolling_restart_goes_on_when_its_supervisor_is_killed(server: RealServer) -> None:
    before = {child.name: child.incarnation for child in (await asyncio.to_thread(server.status)).children}
    command = [sys.executable, "-m", "supervisor", "restart", "--rolling", "--run-dir", str(server.run_dir)]
    process = await asyncio.to_thread(subprocess.Popen, command, stdout=subprocess.DEVNULL)
    for n_done in (2, 4):
        await asyncio.to_thread(server.wait_for, lambda r, n=n_done: r.restart is not None and len(r.restart.done) >= n)
        await asyncio.to_thread(server.kill_supervisor)
    assert await asyncio.to_thread(process.wait, 300.0) == 0, server.log()
    report = await asyncio.to_thread(server.wait_serving)
    assert all(child.incarnation > before[child.name] for child in report.children)
