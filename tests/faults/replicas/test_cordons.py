"""One of two replicas is cordoned and drained under streams, while gateways, schedulers and the supervisor are killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from messages.access.audit_log import AUDIT_FILE
from messages.client import AsyncClient
from supervisor.operator import calls
from tests.support.real_server import RealServer, real_server
from tests.support.streams import N_STREAMS, Streams

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
FLAGS = ("--model", "hash-chain", "--replicas", "2", "--gateways", "2", "--set", "worker.hash_chain_step_s=0.01")


def cordons(server: RealServer) -> dict[str, str]:
    """What the status says of each scheduler."""
    return {child.name: child.cordon for child in server.status().children if child.name.startswith("scheduler/")}


def kill_and_wait(server: RealServer, name: str) -> None:
    server.wait_new_incarnation(name, server.kill(name))


@pytest.fixture
def server() -> Iterator[RealServer]:
    with real_server(*FLAGS) as server:
        yield server


async def test_a_drained_replica_stays_out_of_use_through_every_restart(server: RealServer) -> None:
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(10)
        asked = {"is_cordoned": True, "is_draining": True, "drain_s": 0.5}
        assert await asyncio.to_thread(lambda: calls.ask_cordon(server.run_dir, 1, **asked)) == ""
        assert await asyncio.to_thread(calls.wait_idle, server.run_dir, 1, 60.0)
        for name in ("gateway/0", "scheduler/1"):
            await asyncio.to_thread(kill_and_wait, server, name)
        killed = await asyncio.to_thread(server.kill_supervisor)
        await asyncio.to_thread(server.wait_supervisor, killed)
        await work
        streams.check()
        more = Streams(client, salt=7)
        await asyncio.gather(*(more.follow(index) for index in range(N_STREAMS)))
        more.check()
    assert await asyncio.to_thread(calls.wait_idle, server.run_dir, 1, 60.0)
    assert await asyncio.to_thread(cordons, server) == {"scheduler/0": "", "scheduler/1": "cordoned, idle"}
    idle = await asyncio.to_thread(server.child, "scheduler/1")
    assert idle.statistics["steps"] == 0, "the new scheduler has computed nothing"
    assert await asyncio.to_thread(lambda: calls.ask_cordon(server.run_dir, 1, is_cordoned=False)) == ""
    assert await asyncio.to_thread(cordons, server) == {"scheduler/0": "", "scheduler/1": ""}
    lines = [json.loads(line) for line in (server.run_dir / AUDIT_FILE).read_text().splitlines()]
    assert [(line["action"], line["parameters"]["replica"]) for line in lines] == [("cordon", 1), ("uncordon", 1)]
