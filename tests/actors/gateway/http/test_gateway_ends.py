"""A gateway that ends keeps nobody waiting for tokens that cannot come any more."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.http_connections import HttpConnection, connected
from tests.support.waiting import DEADLINE_S

LONG_S = 10 * DEADLINE_S


def ask(raw: HttpConnection, *, stream: bool) -> None:
    """Ask for an answer of eight tokens under an id of its own, so that it is not cancelled when its connection ends."""
    body = json.dumps({"prompt": [1, 2], "max_tokens": 8, "stream": stream}).encode()
    lines = ("POST /v1/completions HTTP/1.1", "host: localhost", f"idempotency-key: {stream}", f"content-length: {len(body)}")
    raw.writer.write("\r\n".join((*lines, "", "")).encode() + body)


async def end_http(r: Rig) -> None:
    """Stop the HTTP server, as the end of the gateway does. It must not wait for `shutdown_s`."""
    assert r.gateway.servers.http is not None
    async with asyncio.timeout(DEADLINE_S):
        await r.gateway.servers.http.stop()


async def test_unfinished_answers_end_at_once_and_their_requests_stay(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(with_scheduler=False, with_socket=True, shutdown_s=LONG_S) as r, connected(r, 2) as (streamed, whole):
        scheduler = await r.add_scheduler(is_automatic=False)
        ask(streamed, stream=True)
        ask(whole, stream=False)
        await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
        scheduler.step(3)
        async with asyncio.timeout(DEADLINE_S):
            seen = await streamed.reader.readuntil(b"id: 3\n\n")
        await end_http(r)
        async with asyncio.timeout(DEADLINE_S):
            rest = await streamed.reader.read()
        assert seen.startswith(b"HTTP/1.1 200 ")
        assert rest in (b"", b"\r\n"), "the end of the chunk alone; an end of the body would say that the answer is whole"
        status, headers, answer = await whole.answer()
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        assert b"retry-after" in headers
        assert len(r.manager.unfinished.all) == 2, "the next start goes on with them"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_finished_answer_is_sent_to_its_end() -> None:
    async with rig(with_scheduler=False, with_socket=True, shutdown_s=LONG_S) as r, connected(r) as (raw,):
        scheduler = await r.add_scheduler(is_automatic=False)
        ask(raw, stream=True)
        await r.cluster.wait_until(lambda: len(scheduler.running) == 1)
        scheduler.step(8)
        await r.cluster.wait_until(lambda: not r.manager.unfinished.all)
        await end_http(r)
        async with asyncio.timeout(DEADLINE_S):
            assert (await raw.reader.read()).endswith(b"data: [DONE]\nid: 10\n\n\r\n0\r\n\r\n")
