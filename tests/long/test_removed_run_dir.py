"""Everything in the run directory is removed while streams run; then processes are killed, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.streams import N_STREAMS, Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
DEADLINE_S = 60.0
FLAGS = ("--model", "hash-chain", "--gateways", "2", "--set", "worker.hash_chain_step_s=0.01")


def names_in(run_dir: Path) -> set[str]:
    """All that must be there: gang directories are used by a gang that starts, other names belong to commands or to a write."""
    names = {entry.name for entry in run_dir.iterdir() if entry.suffix != ".new"}
    return {name for name in names if not name.startswith(("gang-", "operator-"))}


async def empty(server: RealServer) -> None:
    """Remove everything, and wait until it is there again."""
    before = names_in(server.run_dir)
    for entry in list(server.run_dir.iterdir()):
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)  # the server may remove it at the same time
        else:
            entry.unlink(missing_ok=True)
    async with asyncio.timeout(DEADLINE_S):
        while not before <= names_in(server.run_dir):
            await asyncio.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """Its journals are elsewhere: what was removed of them is computed again, but a kill may come before that."""
    with real_server(*FLAGS, "--state-dir", str(tmp_path / "state")) as server:
        yield server


async def test_streams_survive_kills_in_a_directory_that_was_emptied(server: RealServer) -> None:
    async with AsyncClient(server.zeromq) as client:
        for salt, name in enumerate(("gateway/0", "scheduler/0", "worker/0.0", "custodian/0", "supervisor")):
            streams = Streams(client, salt=salt, extra_tokens=1)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await asyncio.to_thread(server.wait_serving)
            await empty(server)
            if name == "supervisor":
                killed = await asyncio.to_thread(server.kill_supervisor)
                await asyncio.to_thread(server.wait_supervisor, killed)
            else:
                incarnation = await asyncio.to_thread(server.kill, name)
                await asyncio.to_thread(server.wait_new_life, name, incarnation)
            await work
            streams.check()
