"""What belongs to one request or connection is freed without the garbage collector, which would stop the gateway for long."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from actors.gateway.http.answers.chunk_sender import OwnConnection
from actors.gateway.http.connection import Connection
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.request import GrowingSequence, Request
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S


def counts() -> dict[str, int]:
    kinds = (Reader, OwnConnection, Connection, Request, GrowingSequence)
    return {kind.__name__: sum(type(one) is kind for one in gc.get_objects()) for kind in kinds}


async def ask(r: Rig, *, is_streamed: bool, is_kept_alive: bool) -> None:
    body = json.dumps({"prompt": "hello", "max_tokens": 4, "temperature": 0, "stream": is_streamed}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection(*r.address)
    for _ in range(1 + is_kept_alive):
        writer.write(head.replace("connection: close\r\n", "" if is_kept_alive else "connection: close\r\n").encode() + body)
        if is_kept_alive:
            await reader.readuntil(b"0\r\n\r\n" if is_streamed else b"}}")
    if not is_kept_alive:
        await reader.read()
    writer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_streamed", "is_kept_alive"),
    [
        (True, True),
        (False, False),
        pytest.param(True, False, marks=pytest.mark.long),
        pytest.param(False, True, marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("without_collections")
async def test_nothing_of_ended_requests_waits_for_the_collector(is_streamed: bool, is_kept_alive: bool) -> None:
    async with rig(with_socket=True) as r:
        await ask(r, is_streamed=is_streamed, is_kept_alive=is_kept_alive)
        before = counts()
        for _ in range(5):
            await ask(r, is_streamed=is_streamed, is_kept_alive=is_kept_alive)
        async with asyncio.timeout(DEADLINE_S):
            while any(now > then for now, then in zip(counts().values(), before.values(), strict=True)):
                await asyncio.sleep(0.01)
