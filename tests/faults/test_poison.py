"""A request that makes the worker segfault, in a real server with 32 streams: it ends as quarantined, the streams go on.

The fault is planted by the test: a `sitecustomize` on the children's path gives the hash chain a deadly token.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S, Streams

pytestmark = pytest.mark.timeout(600)
POISON = 31_337
PLANTED = f"""
import ctypes
from gpu_workers.hash_chain_engine import HashChainEngine

_launch = HashChainEngine.launch

def launch(self, plan):
    if {POISON} in plan.new_tokens:
        ctypes.string_at(0)
    return _launch(self, plan)

HashChainEngine.launch = launch
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealServer]:
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(root)]))
    with real_server("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.02") as server:
        yield server


async def test_a_request_that_kills_the_worker_is_quarantined(server: RealServer) -> None:
    async with AsyncClient(server.zeromq) as client, httpx.AsyncClient(timeout=DEADLINE_S) as http:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(len(streams.tokens))))
        await streams.wait_running(5)
        body = {"model": "hash-chain", "prompt": [5, POISON, 6], "max_tokens": 9, "temperature": 0}
        answer = await http.post(f"{server.url}/v1/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "quarantined")
        for is_killed in (False, True):  # the next gateway refuses it too: the journal has what is known of it
            if is_killed:
                before = (await asyncio.to_thread(server.child, "gateway/0")).incarnation
                await asyncio.to_thread(server.kill, "gateway/0")
                await asyncio.to_thread(server.wait_new_incarnation, "gateway/0", before)
            # not the connection of the last refusal, which may end with its gateway
            async with httpx.AsyncClient(timeout=DEADLINE_S) as other:
                again = await other.post(f"{server.url}/v1/completions", json=body)
            assert (again.status_code, again.json()["error"]["code"]) == (422, "quarantined")
        await work
        streams.check()
    await asyncio.to_thread(server.wait_serving)
    lives = {name: (await asyncio.to_thread(server.child, name)).incarnation for name in ("worker/0.0", "scheduler/0")}
    assert lives == {"worker/0.0": 5, "scheduler/0": 1}
