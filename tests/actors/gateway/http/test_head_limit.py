"""Headers are bounded in bytes: of one request, of a chunk and after a body. The limit counts nothing else."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from actors.gateway.http.connection_limits import MAX_HEAD_BYTES
from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.http_connections import BODY, HEAD, connected
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

_START = HEAD[: -len(b"\r\n")]
_CHUNKED = b"POST /v1/generate HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
_FILLER = b"a" * (MAX_HEAD_BYTES + 1)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(_START + b"x: " + _FILLER + b"\r\n\r\n" + BODY, id="a complete request with one long header"),
        pytest.param(_START + b"x: y\r\n" * 5000 + b"\r\n" + BODY, id="a complete request with many headers"),
        pytest.param(b"GET /v1/health?" + _FILLER + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", id="a long path"),
        pytest.param(_START + b"x: " + _FILLER, id="a header without an end"),
        pytest.param(_START + b"x: y\r\n" * 5000, id="headers without an end"),
        pytest.param(b"GET /" + _FILLER, id="a path without an end"),
    ],
)
async def test_a_too_large_head_gets_431_and_is_cut(sent: bytes) -> None:
    async with rig(with_socket=True) as r, connected(r, 2) as (flooding, good):
        flooding.writer.write(sent)
        status, headers, answer = await flooding.answer()
        assert (status, headers[b"connection"], answer["error"]["code"]) == (431, b"close", "headers_too_large")
        assert str(MAX_HEAD_BYTES) in answer["error"]["message"]
        assert await flooding.is_closed()
        good.writer.write(HEAD + BODY)
        assert (await good.answer())[0] == 200


@pytest.mark.parametrize(
    ("begun", "sent"),
    [
        pytest.param(b"1\r\n{\r\n", b"0\r\n" + b"x: y\r\n" * 5000, id="trailers without an end"),
        pytest.param(b"1\r\n{\r\n", b"1;" + _FILLER, id="the extension of a chunk without an end"),
    ],
)
async def test_too_large_parts_between_and_behind_chunks_are_cut(begun: bytes, sent: bytes) -> None:
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write(_CHUNKED + begun)
        assert r.gateway.servers.http is not None
        async with asyncio.timeout(DEADLINE_S):
            while not any(one._is_head_read for one in r.gateway.servers.http.connections):
                await asyncio.sleep(0.001)
        raw.writer.write(sent)
        assert (await raw.answer())[0] == 431
        assert await raw.is_closed()


async def test_a_flood_of_headers_is_cut_before_it_fills_the_memory() -> None:
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write(b"GET /v1/health HTTP/1.1\r\n")
        lines = b"x: %b\r\n" % (b"a" * 1000) * 100
        async with asyncio.timeout(DEADLINE_S):
            while not raw.writer.is_closing() and not raw.reader.at_eof():
                raw.writer.write(lines)
                with suppress(ConnectionError):
                    await raw.writer.drain()
                await asyncio.sleep(0)


async def test_what_is_within_the_limit_passes_however_it_arrives() -> None:
    full = _START + b"x: " + b"a" * (MAX_HEAD_BYTES - 200) + b"\r\n\r\n" + BODY
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY)
    chunked = _CHUNKED + chunks + b"0\r\nx: y\r\n\r\n"
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write((HEAD + BODY) * 400 + full * 3 + chunked * 60)
        for _ in range(463):
            assert (await raw.answer())[0] == 200


async def test_the_log_says_that_a_client_speaks_tls_to_plain_http() -> None:
    """An address with https:// instead of http://: its client says no more than that the connection failed."""
    async with rig(with_socket=True) as r, connected(r) as (client,):
        with capture_logs() as log:
            client.writer.write(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
            await client.is_closed()
        (line,) = [one for one in log if "TLS" in one["event"]]
        assert "127.0.0.1" in line["client"]
