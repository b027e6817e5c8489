"""Over real sockets: a caller above its bound is told on its own connection, and others are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.http_connections import BODY, HEAD, connected, until_connected
from tests.support.metric_values import metric_value
from tests.support.tls.certificates import Authority, Signed
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.slow


def head_of(caller: bytes) -> bytes:
    return HEAD[:-2] + b"X-Key: " + caller + b"\r\n\r\n"


async def test_a_caller_that_a_header_names_has_its_own_bound_and_is_told_of_it() -> None:
    async with rig(with_socket=True, caller_header="X-Key", max_caller_connections=2) as r, connected(r, 2) as inside:
        for raw in inside:
            raw.writer.write(head_of(b"flood") + BODY)
            assert (await raw.answer())[0] == 200
        async with connected(r, 2) as (late, other):
            late.writer.write(head_of(b"flood") + BODY)
            status, headers, answer = await late.answer()
            assert (status, answer["error"]["code"], headers[b"connection"]) == (429, "caller_share", b"close")
            assert answer["error"]["message"] == (
                "connections: expected at most 2 open ones of one caller (gateway.max_caller_connections), got 3; "
                "come back in 1s"
            )
            assert headers[b"retry-after"] == b"1"
            assert await late.is_closed()
            other.writer.write(head_of(b"other") + BODY)
            assert (await other.answer())[0] == 200
        inside[0].writer.write(head_of(b"flood") + BODY)
        assert (await inside[0].answer())[0] == 200, "one that is inside stays inside"
        assert metric_value(r.gateway.metrics.cut.labels("caller")) == 1


async def test_connections_of_an_address_that_say_nothing_are_bounded_and_further_ones_closed_at_once() -> None:
    async with rig(with_socket=True, max_caller_connections=2) as r, connected(r, 2):
        await until_connected(r, 2)
        async with connected(r) as (late,):
            late.writer.write(HEAD + BODY)
            status, headers, answer = await late.answer()
            assert (status, answer["error"]["code"], headers[b"connection"]) == (429, "caller_share", b"close")
            assert await late.is_closed()
        async with connected(r, 16 + 20) as crowd:
            cut = [asyncio.ensure_future(raw.is_closed()) for raw in crowd]
            async with asyncio.timeout(DEADLINE_S):
                while sum(one.done() for one in cut) < 20:
                    await asyncio.sleep(0.001)
            for one in cut:
                one.cancel()


async def test_a_handshake_that_is_not_finished_counts_and_a_failed_one_gives_its_place_back(tmp_path: Path) -> None:
    authority, files = Authority(tmp_path), Signed(tmp_path / "server.pem", tmp_path / "server.key")
    authority.signed(serial=1).install(files)
    tls: dict[str, Any] = {"tls_cert": str(files.cert), "tls_key": str(files.key)}
    async with rig(with_socket=True, max_caller_connections=2, **tls) as r:
        silent = [socket.create_connection(r.address) for _ in range(2)]
        context: ssl.SSLContext = authority.trusting()
        status = 200
        async with asyncio.timeout(DEADLINE_S):
            while status != 429:  # the silent ones are accepted soon
                status = await asked(r.address, context)
        for one in silent:
            one.sendall(b"this is no TLS\r\n\r\n")
            one.close()
        async with asyncio.timeout(DEADLINE_S):
            while status != 200:
                status = await asked(r.address, context)


async def asked(address: tuple[str, int], context: ssl.SSLContext) -> int:
    """The status of one request over a TLS connection of its own."""
    reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="127.0.0.1")
    writer.write(HEAD + BODY)
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])
