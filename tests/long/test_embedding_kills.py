"""Two hundred calls for embeddings while the embedder is killed again and again: each gets its vectors, and they are right."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import pytest

from tests.support.embedding.embedders import packaged_folder
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

N_CALLS, N_KILLS, AT_A_TIME = 200, 8, 16


def texts_of(number: int) -> list[str]:
    """The texts of one call: a short and a long one."""
    return [f"text number {number}", f"water bear {number} " * (1 + number % 40)]


async def ask(http: httpx.AsyncClient, texts: list[str]) -> np.ndarray:
    answer = await http.post("/v1/embeddings", json={"input": texts})
    assert answer.status_code == 200, answer.text
    return np.asarray([one["embedding"] for one in answer.json()["data"]], np.float32)


async def all_calls(http: httpx.AsyncClient, server: RealServer) -> list[np.ndarray]:
    """The vectors of all calls. A kill falls between each two equal shares of the answers; it waits for the next life."""
    found: dict[int, np.ndarray] = {}
    numbers = iter(range(N_CALLS))
    progress = asyncio.Condition()

    async def work() -> None:
        for number in numbers:
            found[number] = await ask(http, texts_of(number))
            async with progress:
                progress.notify_all()

    async def kill() -> None:
        incarnation = 0
        for share in range(1, N_KILLS + 1):
            async with progress:
                await progress.wait_for(lambda share=share: len(found) >= share * N_CALLS // (N_KILLS + 2))
            incarnation = await asyncio.to_thread(server.kill, "embedder/0", after=incarnation)

    await asyncio.gather(kill(), *(work() for _ in range(AT_A_TIME)))
    return [found[number] for number in range(N_CALLS)]


async def run_calls(server: RealServer) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The vectors of every tenth call without kills, and of all calls with kills."""
    async with httpx.AsyncClient(base_url=server.url, timeout=120.0) as http:
        expected = [await ask(http, texts_of(number)) for number in range(0, N_CALLS, 10)]
        return expected, await all_calls(http, server)


def test_no_call_is_lost() -> None:
    packaged_folder()
    with real_server("--model", "hash-chain", "--embedding-model", "minilm") as server:
        expected, found = asyncio.run(run_calls(server))
        assert server.child("embedder/0").incarnation >= N_KILLS
        assert server.child("gateway/0").incarnation == 1
    assert np.abs(np.stack(found[::10]) - np.stack(expected)).max() < 1e-5
    assert all(np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5 for vectors in found)
