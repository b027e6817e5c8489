"""The only replica of the main model is gone: new streams of a real server run on the fallback model, whoever is killed there.
Old ones go on when the replica is back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S, N_STREAMS, Streams
from tests.support.workers.faulty_device import FaultyDevices

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]  # `make test` simulates it: tests/simulation/test_fallback.py
VOCABULARY = 1009
FLAGS = (
    *("--model", "hash-chain", "--model-name", "big", "--fallback-model", "hash-chain", "--gateways", "2"),
    *("--set", "fallback.model_name=small", "--set", f"fallback.hash_chain_vocabulary={VOCABULARY}"),
    *("--set", "fallback.n_slots=64", "--set", "worker.hash_chain_step_s=0.01"),
    *("--set", "supervisor.restart_attempts=1000"),
)
KILLED = ("worker/1000.0", "scheduler/1000", "gateway/0")


async def _kill_one_after_the_other(server: RealServer, streams: Streams) -> None:
    for number, name in enumerate(KILLED, 1):
        await streams.wait_running(25 * number)
        incarnation = await asyncio.to_thread(server.kill, name)
        streams.assert_cut()
        await asyncio.to_thread(server.wait_new_incarnation, name, incarnation)


async def _wait_health(http: httpx.AsyncClient, server: RealServer, status: str) -> None:
    """Until both gateways know it: each call may reach the other one."""
    n_alike = 0
    async with asyncio.timeout(DEADLINE_S):
        while n_alike < 20:
            found = (await http.get(f"{server.url}/v1/health", headers={"connection": "close"})).json()["status"]
            n_alike = n_alike + 1 if found == status else 0
            await asyncio.sleep(0.01)


@pytest.fixture
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyDevices]:
    devices = FaultyDevices(tmp_path_factory.mktemp("devices"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        devices.plant(monkeypatch)
        yield devices


@pytest.fixture
def server(devices: FaultyDevices) -> Iterator[RealServer]:
    with real_server(*FLAGS) as server:
        yield server


async def test_no_stream_is_lost_and_none_changes_its_model(server: RealServer, devices: FaultyDevices) -> None:
    async with AsyncClient(server.zeromq) as client, httpx.AsyncClient(timeout=DEADLINE_S) as http:
        old, new = Streams(client), Streams(client, salt=1, vocabulary=VOCABULARY)
        old_work = asyncio.gather(*(old.follow(index) for index in range(N_STREAMS)))
        await old.wait_running(10)
        devices.break_it("worker/0.0", "load")
        await asyncio.to_thread(server.kill, "worker/0.0")
        old.assert_cut()
        await _wait_health(http, server, "degraded")
        assert (await client.generate([1, 2], max_tokens=2)).fallback_model == "small"
        new_work = asyncio.gather(*(new.follow(index) for index in range(N_STREAMS)))
        await _kill_one_after_the_other(server, new)
        await new_work
        new.check()
        old.assert_cut()
        devices.repair("worker/0.0", "load")
        await old_work
        old.check()
        await _wait_health(http, server, "serving")
        assert (await client.generate([1, 2], max_tokens=2)).fallback_model == ""
