"""The custodian holds what gateways give it, and lets go of what a gateway that never comes back has left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from actors.custodian.custodian_actor import CustodianActor
from actors.custodian.settings import CustodianSettings
from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.packets import Change
from tests.support.memory_cluster import MemoryCluster, ScriptedActor
from tests.support.waiting import DEADLINE_S


async def test_sockets_of_a_gateway_that_stays_dead_are_closed(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    settings = CustodianSettings(socket_path=str(tmp_path / "c"), abandoned_s=0.05)
    actor = cluster.start(CustodianActor, "custodian/0", settings)
    await cluster.wait_until(lambda: "custodian/0" in cluster.up)

    cluster.introduce(ScriptedActor(cluster, "gateway/0"))
    client = AsyncDescriptorClient(tmp_path / "c")
    read, write = os.pipe()
    client.tell("gateway/0", [(Change("k", b"", has_descriptor=True), write)])
    os.close(write)
    async with asyncio.timeout(DEADLINE_S):
        while actor.statistics() != {"sockets": 1}:
            await asyncio.sleep(0.001)
        await cluster.kill("gateway/0")
        while actor.statistics() != {"sockets": 0}:
            await asyncio.sleep(0.001)
    assert os.read(read, 1) == b"", "the last writer has closed"
    os.close(read)
    client.close()
    await cluster.close()
