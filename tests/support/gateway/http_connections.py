"""Bare TCP connections to the gateway's HTTP server, and one complete request as bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.gateway.gateway_rig import Rig
from tests.support.waiting import DEADLINE_S

BODY = json.dumps({"tokens": [3], "max_tokens": 2, "temperature": 0}).encode()
HEAD = b"POST /v1/generate HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(BODY)


class HttpConnection:
    """One TCP connection to the gateway's HTTP server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, dict[bytes, bytes], dict]:
        """Status, headers and JSON body of one response."""
        async with asyncio.timeout(DEADLINE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status, *lines = head.split(b"\r\n")
            headers = dict(line.lower().split(b": ", 1) for line in lines if line)
            return int(status.split()[1]), headers, json.loads(await self.reader.readexactly(int(headers[b"content-length"])))

    async def is_closed(self) -> bool:
        """Wait until the server closes; True if it has sent nothing more before."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True


@asynccontextmanager
async def connected(r: Rig, n: int = 1) -> AsyncIterator[list[HttpConnection]]:
    """`n` open connections to the gateway."""
    connections = [HttpConnection(*await asyncio.open_connection(*r.address)) for _ in range(n)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.writer.close()


async def until_connected(r: Rig, n: int) -> None:
    """Wait until the gateway has `n` HTTP connections."""
    assert r.gateway.servers.http is not None
    async with asyncio.timeout(DEADLINE_S):
        while r.gateway.servers.http.n_connections != n:
            await asyncio.sleep(0.001)
