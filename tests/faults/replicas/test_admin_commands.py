"""An admin drains a server and cordons its replicas over HTTP; no stream that runs is lost by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.access.audit_log import AUDIT_FILE
from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY

pytestmark = pytest.mark.timeout(600)
KEY = {"X-Operator-Key": "my-key"}
FLAGS = ("--model", "hash-chain", "--replicas", "2", "--set", "worker.hash_chain_step_s=0.01")
N_TOKENS, PROMPT = 400, [1, 2, 3]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with real_server(*FLAGS, "--set", "gateway.operator_key=my-key") as server:
        yield server


def command(server: RealServer, name: str, **body: object) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{name}", json=body, headers=KEY, timeout=DEADLINE_S)


async def follow(server: RealServer, begun: asyncio.Event) -> None:
    tokens = list[int]()
    async with AsyncClient(server.zeromq) as client:
        async for piece in client.stream(tokens=PROMPT, max_tokens=N_TOKENS, temperature=0.0, deadline_s=DEADLINE_S):
            tokens += piece.ids
            begun.set()
    assert tokens == hash_chain_tokens(PROMPT, N_TOKENS, 0, VOCABULARY)


async def test_a_stream_survives_a_drain_that_is_taken_back(server: RealServer) -> None:
    begun = asyncio.Event()
    work = asyncio.create_task(follow(server, begun))
    await begun.wait()
    drained = await asyncio.to_thread(command, server, "drain", deadline_s=30)
    assert (drained.status_code, drained.json()) == (200, {"state": "draining"})
    refused = await asyncio.to_thread(
        lambda: httpx.post(f"{server.url}/v1/generate", json={"tokens": PROMPT, "max_tokens": 2}, timeout=DEADLINE_S)
    )
    assert refused.status_code == 503
    assert "draining" in refused.text
    await work
    assert (await asyncio.to_thread(command, server, "serve")).status_code == 200
    await asyncio.to_thread(server.wait_serving)
    await follow(server, asyncio.Event())


async def test_a_replica_is_cordoned_and_used_again(server: RealServer) -> None:
    begun = asyncio.Event()
    work = asyncio.create_task(follow(server, begun))
    await begun.wait()
    done = await asyncio.to_thread(lambda: command(server, "cordon", replica=1, drain=True, deadline_s=0))
    assert (done.status_code, done.json()) == (200, {"replica": 1, "is_cordoned": True, "state": "serving"})
    await asyncio.to_thread(server.wait_for, lambda r: any(child.cordon.endswith("idle") for child in r.children))
    await work
    assert (await asyncio.to_thread(lambda: command(server, "uncordon", replica=1))).json()["is_cordoned"] is False
    await asyncio.to_thread(server.wait_for, lambda r: not any(child.cordon for child in r.children))


def test_what_the_server_refuses_says_why(server: RealServer) -> None:
    refused = command(server, "cordon", replica=9)
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == "replica: expected one of 0, 1, got 9"
    unknown = command(server, "drain", then_stop=True)
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "then_stop")
    stranger = httpx.post(f"{server.url}/v1/drain", json={}, timeout=DEADLINE_S)
    assert (stranger.status_code, stranger.json()["error"]["code"]) == (403, "operator_only")
    assert server.status().state == "serving"
    lines = [json.loads(line) for line in (server.run_dir / AUDIT_FILE).read_text().splitlines()]
    (cordon, *_) = lines[-3:]
    assert (cordon["action"], cordon["result"], cordon["parameters"]) == ("POST /v1/cordon", "conflict", {"replica": 9})
