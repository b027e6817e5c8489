"""A supervisor that freezes: nobody notices, and the work goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from messages.client import AsyncClient
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import N_STREAMS, Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")


@pytest.fixture
def server() -> Iterator[RealServer]:
    with real_server(*WITH_SPARES, *FLAGS) as server:
        yield server


async def test_a_frozen_supervisor_is_replaced_and_streams_do_not_notice(server: RealServer) -> None:
    before = {child.name: child.incarnation for child in (await asyncio.to_thread(server.status)).children}
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(20)
        frozen = await asyncio.to_thread(server.kill_supervisor, signal.SIGSTOP)
        await work
        streams.check()
    report = await asyncio.to_thread(server.wait_supervisor, frozen)
    assert {child.name: child.incarnation for child in report.children} == before
    assert "is stopped: killed, to be replaced" in server.log()
