"""Everything in the run directory is removed while streams run; then processes are killed, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.client import AsyncClient
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import N_STREAMS, Streams
from tests.support.supervisor.emptied_run_dir import empty

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
FLAGS = ("--model", "hash-chain", "--gateways", "2", "--set", "worker.hash_chain_step_s=0.01")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """Its journals are elsewhere: what was removed of them is computed again, but a kill may come before that."""
    with real_server(*WITH_SPARES, *FLAGS, "--state-dir", str(tmp_path / "state")) as server:
        yield server


async def test_streams_survive_kills_in_a_directory_that_was_emptied(server: RealServer) -> None:
    async with AsyncClient(server.zeromq) as client:
        for salt, name in enumerate(("gateway/0", "scheduler/0", "worker/0.0", "custodian/0", "supervisor")):
            streams = Streams(client, salt=salt, extra_tokens=1)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await asyncio.to_thread(server.wait_serving)
            await empty(server.run_dir)
            if name == "supervisor":
                killed = await asyncio.to_thread(server.kill_supervisor)
                await asyncio.to_thread(server.wait_supervisor, killed)
            else:
                incarnation = await asyncio.to_thread(server.kill, name)
                await asyncio.to_thread(server.wait_new_incarnation, name, incarnation)
            await work
            streams.check()
