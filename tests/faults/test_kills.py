"""kill -9 and freeze of every kind of process while 32 streams run: each stream ends with exactly the oracle's tokens.

The hash chain makes any loss, repeat or wrong prefix visible; an artificial step time keeps the streams running while the
process dies, and each test checks that they were.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import httpx
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from tests.faults.streams import DEADLINE_S, N_STREAMS, N_TOKENS, VOCABULARY, Streams
from tests.support.real_server import RealServer, real_server

pytestmark = pytest.mark.timeout(180)
ROLES = ("worker/0.0", "scheduler/0", "gateway/0", "cache_directory/0", "speculation/0")


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    flags = [
        "worker.hash_chain_step_s=0.01",
        "supervisor.frozen_s=2.0",
        "supervisor.gang_restarts=100",
        "supervisor.actor_restarts=100",
    ]
    with real_server("--model", "hash-chain", *(part for flag in flags for part in ("--set", flag))) as server:
        yield server


async def run_with(server: RealServer, faults: list[tuple[int, str, signal.Signals]]) -> None:
    """All streams, and at each (tokens, name, signal) a fault; the child must come back as a new life."""
    await asyncio.to_thread(server.wait_serving)
    async with AsyncClient(server.front) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        killed = []
        for n_tokens, name, how in faults:
            await streams.wait_running(n_tokens)
            killed.append((name, await asyncio.to_thread(server.kill, name, how)))
        await work
        streams.check()
    for name, incarnation in killed:
        await asyncio.to_thread(server.wait_new_life, name, incarnation)


@pytest.mark.parametrize("name", ROLES)
async def test_kill_while_streams_run(server: RealServer, name: str) -> None:
    await run_with(server, [(20, name, signal.SIGKILL)])


@pytest.mark.parametrize("name", ["worker/0.0", "scheduler/0", "gateway/0"])
async def test_kill_at_the_first_token(server: RealServer, name: str) -> None:
    await run_with(server, [(1, name, signal.SIGKILL)])


@pytest.mark.parametrize("name", ["worker/0.0", "scheduler/0", "gateway/0"])
async def test_freeze_while_streams_run(server: RealServer, name: str) -> None:
    await run_with(server, [(20, name, signal.SIGSTOP)])


async def test_kill_of_everything_one_after_the_other(server: RealServer) -> None:
    await run_with(server, [(10 + 40 * at, name, signal.SIGKILL) for at, name in enumerate(ROLES)])


async def test_plain_http_streams_survive_worker_and_scheduler(server: RealServer) -> None:
    await asyncio.to_thread(server.wait_serving)
    body = {"prompt": [5, 6, 7], "max_tokens": N_TOKENS, "temperature": 0, "stream": True, "model": "hash-chain"}
    text, kills = "", ["worker/0.0", "scheduler/0"]
    async with (
        httpx.AsyncClient(timeout=DEADLINE_S) as http,
        http.stream("POST", f"{server.url}/v1/completions", json=body) as reply,
    ):
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                text += httpx.Response(200, content=line[6:]).json()["choices"][0]["text"]
                if kills and text.count(" ") > 100 * (3 - len(kills)):
                    await asyncio.to_thread(server.kill, kills.pop(0))
    assert not kills
    assert [int(word) for word in text.split()] == hash_chain_tokens([5, 6, 7], N_TOKENS, 0, VOCABULARY)
