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


@pytest.mark.parametrize("offer", [b"h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA", b"websocket"])
async def test_offers_of_other_protocols_are_passed_over(offer: bytes) -> None:
    """Java's HttpClient and `curl --http2` send such a head with every request, and its body as HTTP/1.1."""
    asked = HEAD[:-2] + b"connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + offer + b"\r\n\r\n" + BODY
    async with rig(with_socket=True) as r, connected(r, 2) as (together, dripping):
        together.writer.write(asked * 2 + HEAD + BODY + asked)
        for byte in asked:
            dripping.writer.write(bytes([byte]))
            await dripping.writer.drain()
        for raw in (together, together, together, together, dripping):
            status, _, answer = await raw.answer()
            assert (status, answer["generated_tokens"]) == (200, 2)


async def test_connect_is_refused() -> None:
    """It is the one request whose connection would be another protocol's."""
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            assert (await raw.reader.read()).startswith(b"HTTP/1.1 400 ")
