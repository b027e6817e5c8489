"""Clients that send several requests at once over one connection, and leave."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.http_connections import BODY, HEAD, connected
from tests.support.waiting import DEADLINE_S


async def test_a_client_that_leaves_behind_two_requests_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Both are told: the one that is answered, and the one that waits for it."""
    async with rig(with_scheduler=False, with_socket=True) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with connected(r) as (raw,):
            assert r.gateway.servers.http is not None
            raw.writer.write((HEAD + BODY) * 2)
            await r.cluster.wait_until(lambda: scheduler.running)
            (connection,) = r.gateway.servers.http.connections
            async with asyncio.timeout(DEADLINE_S):
                while not connection.pipeline:
                    await asyncio.sleep(0.001)
            tasks = list(connection.tasks)
            raw.writer.transport.abort()
            await asyncio.gather(*tasks)
            await r.cluster.wait_until(lambda: not scheduler.running)
        assert not connection.pipeline
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
