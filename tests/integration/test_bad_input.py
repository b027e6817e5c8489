"""Bad input over the real interfaces of a real server: a clear refusal each, and nothing else is disturbed.

One stream runs all the while; at the end it has exactly its tokens, and no process has been restarted.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import zmq

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.errors import InvalidRequest
from messages.lifecycle.tree import StatusReport
from tests.support.real_server import RealServer, real_server

pytestmark = pytest.mark.timeout(600)
N_TOKENS = 1500
_CHAT, _TEXT = "/v1/chat/completions", "/v1/completions"


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "hash-chain", "prompt": "Hi", "max_tokens": 4} | fields).encode()


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "hash-chain", "messages": [{"role": "user", "content": "Hi"}]} | fields).encode()


# (path, body, status, what the error names)
REFUSALS: tuple[tuple[str, bytes, int, str], ...] = (
    (_CHAT, b'{"model": "hash-chain", "messages": [', 400, "JSON"),
    (_CHAT, b"\xff\xfe\x00", 400, ""),
    (_CHAT, chat(messages=[]), 400, "messages"),
    (_CHAT, chat(messages="Hello"), 400, "messages"),
    (_CHAT, chat(messages=[{"role": "user", "content": 7}]), 400, "content"),
    (_CHAT, chat(model="no-such-model"), 404, "model"),
    (_CHAT, chat(temperature=-1), 400, "temperature"),
    (_CHAT, chat(temperature="hot"), 400, "temperature"),
    (_CHAT, chat(top_p=0), 400, "top_p"),
    (_CHAT, chat(max_tokens=-5), 400, "max_tokens"),
    (_CHAT, chat(max_tokens=10**30), 400, "max_tokens"),
    (_CHAT, chat(seed=2**80), 400, "seed"),
    (_CHAT, chat(n=100_000), 400, "n"),
    (_TEXT, body(prompt="x" * 20_000), 400, "8192"),
    (_TEXT, body(prompt=[1, -2]), 400, "prompt"),
    (_TEXT, body(prompt=[99_999_999]), 400, "99999999"),
    (_TEXT, body(prompt=[]), 400, "prompt"),
    (_TEXT, body(prompt=[[1]] * 5000), 400, "prompt"),
    (_TEXT, body(repetition_penalty=1e-39), 400, "repetition_penalty"),
    (_TEXT, body(stop=["x"] * 100), 400, "stop"),
    (_TEXT, body(prompt="x" * 10_000_000), 400, ""),
    (_TEXT, body(prompt="x" * 20_000_000), 413, ""),
)


async def refuse(http: httpx.AsyncClient, path: str, content: bytes, status: int, named: str) -> None:
    reply = await http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == status, (content[:80], reply.text[:300])
    error = reply.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert named in f"{error['message']} {error['param']}", error


def babble(server: RealServer) -> None:
    """Garbage on the public ZeroMQ socket and on the actors' own: as messages, as bytes, as half a frame."""
    context = zmq.Context()
    for endpoint in (server.zeromq, f"ipc://{server.run_dir}/supervisor"):
        stranger = context.socket(zmq.DEALER)
        stranger.connect(endpoint)
        for frames in ([b""], [b"\x81\xa4kind\xa8Generate", b""], [b"\xc1" * 50, b"x"], [b"a"] * 20, [b"\x91" * 5000, b""]):
            stranger.send_multipart(frames)
        stranger.close(linger=200)
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(endpoint.removeprefix("ipc://"))
        raw.sendall(b"\xff\x00\x00\x00\x00\x00\x00\x00\x09\x7f" + b"half a greeting")
        raw.close()
    context.term()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{half a body")


def lives(report: StatusReport) -> list[tuple[str, int, int]]:
    """Every child's name, process and incarnation."""
    return [(child.name, child.pid, child.incarnation) for child in report.children]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with real_server("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.002") as server:
        yield server


async def test_everything_wrong_is_refused_and_nothing_else_happens(server: RealServer) -> None:
    before = await asyncio.to_thread(server.status)
    async with AsyncClient(server.zeromq) as client, httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        stream = asyncio.ensure_future(client.generate([1, 2, 3], max_tokens=N_TOKENS, temperature=0.0))
        for refusal in REFUSALS:
            await refuse(http, *refusal)
        await asyncio.to_thread(babble, server)
        assert (await http.get("/no/such/path")).status_code == 404
        assert (await http.get(_CHAT)).status_code == 405
        for wrong in ({"max_tokens": 10**9}, {"temperature": -3.0}, {"stop": ["x" * 1000]}):
            with pytest.raises(InvalidRequest):
                await client.generate("Hi", **wrong)
        with pytest.raises(InvalidRequest, match="token"):
            await client.generate([-1])
        assert (await stream).tokens == hash_chain_tokens([1, 2, 3], N_TOKENS, 0, 32_768)
        assert (await http.get("/v1/health")).status_code == 200
    after = await asyncio.to_thread(server.status)
    assert [(c.name, c.pid, c.incarnation) for c in after.children] == [(c.name, c.pid, c.incarnation) for c in before.children]


def test_two_servers_do_not_disturb_each_other(server: RealServer) -> None:
    with real_server("--model", "hash-chain") as other:
        assert server.port != other.port
        for one in (server, other):
            reply = httpx.post(f"{one.url}/v1/generate", json={"tokens": [1, 2], "max_tokens": 5, "temperature": 0})
            assert reply.status_code == 200, reply.text
            assert reply.json()["tokens"] == hash_chain_tokens([1, 2], 5, 0, 32_768)
