"""What the HTTP server writes to a socket is what `StreamBytes` computes from the request."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from actors.gateway.http.answers.stream_bytes import LAST_CHUNK, Begun, StreamBytes, stream_head
from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.openai_chunks import ChunkWriter
from actors.gateway.requests.request import Request
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S

CHAT = {"messages": [{"role": "user", "content": "hi"}], "n": 2, "logprobs": True, "stream_options": {"include_usage": True}}
COMPLETION = {"prompt": "hello", "echo": True, "stop": ["nothing like this"]}


def events_of(request: Request, r: Rig) -> StreamEvents:
    return StreamEvents(request, ChunkWriter(request, r.gateway.settings.model_name, r.gateway.models.main.text))


def bytes_of(request: Request, r: Rig, *, is_kept_alive: bool, skip_bytes: int = 0) -> StreamBytes:
    return StreamBytes(events_of(request, r), stream_head(request, is_kept_alive=is_kept_alive), skip_bytes)


async def until_running(r: Rig, scheduler: FakeScheduler, n: int) -> Request:
    await r.cluster.wait_until(lambda: len(scheduler.running) == n)
    return r.manager.unfinished.all[0]


@pytest.mark.parametrize(("path", "question", "n"), [("chat/completions", CHAT, 2), ("completions", COMPLETION, 1)])
@pytest.mark.parametrize("is_kept_alive", [True, False])
async def test_a_socket_gets_the_computed_bytes(path: str, question: dict, n: int, is_kept_alive: bool) -> None:
    async with rig(with_scheduler=False, with_socket=True) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = json.dumps({**question, "max_tokens": 12, "temperature": 0, "stream": True}).encode()
        head = f"POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        reader, writer = await asyncio.open_connection(*r.address)
        writer.write(head.encode() + (b"" if is_kept_alive else b"connection: close\r\n") + b"\r\n" + body)
        request = await until_running(r, scheduler, n)
        for n_tokens in (1, 3, 2, 6):  # several tokens at a time are still one event each
            scheduler.step(n_tokens)
        async with asyncio.timeout(DEADLINE_S):
            read = await reader.readuntil(LAST_CHUNK)
            rest = bytes_of(request, r, is_kept_alive=is_kept_alive)
            assert rest.take() == read
            assert rest.is_done
            half = bytes_of(request, r, is_kept_alive=is_kept_alive, skip_bytes=len(read) // 2)
            assert half.take() == read[len(read) // 2 :]
            if is_kept_alive:
                writer.write(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                models = await reader.read()
                assert models.startswith(b"HTTP/1.1 200 OK\r\ndate: "), "other answers have the present date"
            assert await reader.read() == b""
        writer.close()


async def test_a_silent_stream_gets_pings_that_its_request_remembers() -> None:
    async with rig(with_scheduler=False, with_socket=True, sse_ping_s=0.01) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = json.dumps({"prompt": [1, 2], "max_tokens": 2, "temperature": 0, "stream": True}).encode()
        reader, writer = await asyncio.open_connection(*r.address)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        request = await until_running(r, scheduler, 1)
        async with asyncio.timeout(DEADLINE_S):
            read = await reader.readuntil(b": waiting\n\r\n") + await reader.readuntil(b": waiting\n\r\n")
            scheduler.step()
            read += await reader.readuntil(b": waiting\n\r\n")
            scheduler.step()
            read += await reader.readuntil(LAST_CHUNK)
        assert bytes_of(request, r, is_kept_alive=True).take() == read
        writer.close()


@pytest.mark.parametrize(("n", "has_runs"), [(1, False), (2, True)])
async def test_a_successor_knows_whether_a_client_has_more_than_the_journal_had(n: int, has_runs: bool) -> None:
    async with rig(with_scheduler=False, with_socket=True) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = json.dumps({"prompt": "hello", "n": n, "max_tokens": 12, "stream": True}).encode()
        _, writer = await asyncio.open_connection(*r.address)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        request = await until_running(r, scheduler, n)
        scheduler.step(3)
        await r.cluster.wait_until(lambda: request.n_generated == 3 * n)
        request.n_restored_items = len(request.stream_items)  # as if a successor had read it from the journal
        if n > 1:
            request.begin_run(0.5, 2)
        n_bytes = len(bytes_of(request, r, is_kept_alive=True).take())
        n_bare_bytes = len(stream_head(request, is_kept_alive=True)) + sum(map(len, events_of(request, r).take()))
        scheduler.step(3)  # tokens that are computed after the death
        await r.cluster.wait_until(lambda: request.n_generated == 6 * n)

        def is_more(begun: Begun) -> bool:
            events = events_of(request, r)
            return begun.exceeds_journal(request, events, begun.n_head_bytes(request, events))

        assert not is_more(Begun(n_bytes=n_bytes))
        assert not is_more(Begun(n_bytes=n_bytes + 19, n_more_head_bytes=19))
        assert not is_more(Begun(n_chunks=3 * n))
        assert not is_more(Begun(n_bytes=n_bare_bytes, is_bare=True))
        more = Begun(n_bytes=n_bytes + 1), Begun(n_chunks=3 * n + 1), Begun(n_bytes=n_bare_bytes + 1, is_bare=True)
        for begun in more:
            assert is_more(begun)
            written_later = dataclasses.replace(begun, run=request.run)
            assert is_more(written_later) is not has_runs, "the present run may have written it"
            if has_runs:
                assert is_more(dataclasses.replace(begun, run=request.run + 1)), "a damaged journal has lost that run"
        writer.close()
