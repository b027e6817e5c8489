"""Two replicas in a real server. The device of one is gone, or faults in every step: its streams go on at the other replica."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from messages.client import AsyncClient
from messages.lifecycle.tree import StatusReport
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S, N_STREAMS, Streams
from tests.support.workers.faulty_device import FaultyDevices

pytestmark = pytest.mark.timeout(600)
FLAGS = ("worker.hash_chain_step_s=0.01", "supervisor.restart_attempts=2")


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyDevices]:
    devices = FaultyDevices(tmp_path_factory.mktemp("devices"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        devices.plant(monkeypatch)
        yield devices


@pytest.fixture(scope="module")
def server(devices: FaultyDevices) -> Iterator[RealServer]:
    sets = (part for flag in FLAGS for part in ("--set", flag))
    with real_server("--model", "hash-chain", "--replicas", "2", *sets) as server:
        yield server


def is_retired(report: StatusReport) -> bool:
    return any(child.name == "worker/1.0" and child.retired for child in report.children)


async def wait_condition(http: httpx.AsyncClient, server: RealServer, condition: str) -> None:
    """Until the second replica is in this condition."""
    async with asyncio.timeout(DEADLINE_S):
        while (await http.get(f"{server.url}/v1/health")).json()["parts"]["replicas"]["scheduler/1"] != condition:
            await asyncio.sleep(0.05)


async def test_a_device_that_faults_in_every_step_loses_no_stream(server: RealServer, devices: FaultyDevices) -> None:
    async with AsyncClient(server.zeromq) as client, httpx.AsyncClient(timeout=DEADLINE_S) as http:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(10)
        devices.break_it("worker/1.0", "step")
        await wait_condition(http, server, "sick")
        devices.repair("worker/1.0", "step")
        await work
        streams.check()
        await wait_condition(http, server, "up")


async def test_a_device_that_is_gone_is_one_replica_less(server: RealServer, devices: FaultyDevices) -> None:
    async with AsyncClient(server.zeromq) as client, httpx.AsyncClient(timeout=DEADLINE_S) as http:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(10)
        devices.break_it("worker/1.0", "load")
        await asyncio.to_thread(server.kill, "worker/1.0")
        streams.assert_cut()
        await work
        streams.check()
        report = await asyncio.to_thread(server.wait_for, is_retired)
        assert report.state == "degraded"
        health = await http.get(f"{server.url}/v1/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert 'tardigrade_retired{actor="worker/1.0"} 1.0' in (await http.get(f"{server.url}/metrics")).text
    assert "group not restarted for now: the server continues without it" in server.log()
