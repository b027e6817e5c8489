"""Real servers: HTTP clients whose gateway is killed come back with Last-Event-ID and read exactly the rest."""

from __future__ import annotations

import asyncio
import re

import httpx

from tests.support.answers.client_libraries import openai
from tests.support.answers.resuming_reader import BODY, Reader
from tests.support.real_server import RealServer, real_server

DEADLINE_S = 120.0
N_STREAMS = 8
# connections end with their gateways, as behind a proxy that is lost
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.005", "--set", "hold_connections=false")


def test_streams_are_read_on_after_every_gateway_was_killed_and_retries_join() -> None:
    with real_server("--gateways", "2", *FLAGS) as server:
        asyncio.run(_read_streams(server))
        server.wait_serving()
        asyncio.run(_retry_by_itself(server))
        server.wait_serving()


async def _read_streams(server: RealServer) -> None:
    async with asyncio.timeout(DEADLINE_S), httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S) as http:
        readers = [Reader(http, f"key {n}") for n in range(N_STREAMS)]
        is_far = asyncio.Semaphore(0)
        reading = [asyncio.ensure_future(reader.read(is_far)) for reader in readers]
        for index in range(2):
            for _ in range(N_STREAMS // 2):
                await is_far.acquire()
            await asyncio.to_thread(server.kill, f"gateway/{index}")
        for reader, body in zip(readers, await asyncio.gather(*reading), strict=True):
            whole = await http.get(f"/v1/streams/{reader.key}")
            assert without_pings(whole.content) == without_pings(body)


async def _retry_by_itself(server: RealServer) -> None:
    """The openai client sends its request again with the same headers when a connection is lost."""
    async with asyncio.timeout(DEADLINE_S):
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=10)
        body = {name: value for name, value in BODY.items() if name != "stream"}
        headers = {"Idempotency-Key": "mine"}
        answer = asyncio.ensure_future(client.completions.create(model="", extra_headers=headers, **body))
        for index in range(2):
            await asyncio.to_thread(server.kill, f"gateway/{index}")
        first = await answer
        again = await client.completions.create(model="", extra_headers=headers, **body)
        assert first.choices[0].text == again.choices[0].text
        assert (first.id, first.created) == (again.id, again.created), "it is the same generation"
        await client.close()


def without_pings(body: bytes) -> bytes:
    return re.sub(rb"^: waiting\n", b"", body, flags=re.MULTILINE)
