"""Clients that send slowly, or come in crowds, over real sockets: they are told and cut, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from starlette.types import Receive, Scope, Send

from actors.gateway.http.answers.hangup import Hangup
from actors.gateway.http.connection import Connection
from actors.gateway.http.server import HttpServer
from actors.gateway.settings import GatewaySettings
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.http_connections import BODY, HEAD, connected, until_connected
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.slow


def connections_of(r: Rig) -> list[Connection]:
    assert r.gateway.servers.http is not None
    return r.gateway.servers.http.connections


def look_later(r: Rig, later_s: float) -> None:
    """The look that would come after so many seconds."""
    for connection in connections_of(r):
        connection.cut_if_slow(asyncio.get_running_loop().time() + later_s)


async def test_slow_heads_and_bodies_are_cut_and_told() -> None:
    async with rig(with_socket=True, head_s=15.0, body_s=60.0) as r, connected(r, 4) as (silent, head, body, good):
        head.writer.write(HEAD[:30])
        body.writer.write(HEAD + BODY[:5])
        good.writer.write(HEAD + BODY)
        assert (await good.answer())[0] == 200
        await until_connected(r, 4)
        look_later(r, 14.0)
        await until_connected(r, 4)
        look_later(r, 16.0)
        for raw in (silent, head):
            status, headers, answer = await raw.answer()
            assert (status, headers[b"connection"], answer["error"]["code"]) == (408, b"close", "request_timeout")
            assert "headers" in answer["error"]["message"]
            assert await raw.is_closed()
        look_later(r, 61.0)
        status, _, answer = await body.answer()
        assert (status, "60 s" in answer["error"]["message"]) == (408, True)
        assert await body.is_closed()
        good.writer.write(HEAD + BODY)
        assert (await good.answer())[0] == 200, "an idle connection is not a slow one"
        figures = [
            f"{s.name} {s.value}" for m in r.gateway.metrics.cut.collect() for s in m.samples if s.labels["why"] == "slow"
        ]
        assert "tardigrade_http_cut_total 3.0" in figures


async def test_dripping_line_ends_after_an_answer_are_slow_too() -> None:
    async with rig(with_socket=True, head_s=15.0) as r, connected(r) as (raw,):
        raw.writer.write(HEAD + BODY)
        assert (await raw.answer())[0] == 200
        look_later(r, 1000.0)
        raw.writer.write(b"\r\n")
        await until_connected(r, 1)
        (connection,) = connections_of(r)
        async with asyncio.timeout(DEADLINE_S):
            while not connection._since_s:
                await asyncio.sleep(0.001)
        look_later(r, 16.0)
        assert (await raw.answer())[0] == 408


@pytest.mark.parametrize("part", [HEAD[:40], HEAD, HEAD + BODY[:5]])
async def test_a_slow_request_behind_another_one_has_its_own_time(part: bytes) -> None:
    """It may come in the same packet; while the first one is answered nobody reads it, and so nobody hurries it."""
    async with rig(with_scheduler=False, with_socket=True, head_s=15.0, body_s=60.0) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with connected(r) as (raw,):
            raw.writer.write(HEAD + BODY + part)
            await r.cluster.wait_until(lambda: scheduler.running)
            look_later(r, 10_000.0)
            scheduler.step(2)
            assert (await raw.answer())[0] == 200
            look_later(r, 14.0)
            await until_connected(r, 1)
            look_later(r, 61.0)
            status, _, answer = await raw.answer()
            assert (status, answer["error"]["code"]) == (408, "request_timeout")
            assert await raw.is_closed()


async def test_pipelined_requests_are_all_answered_and_then_idle() -> None:
    async with rig(with_socket=True) as r, connected(r) as (raw,):
        raw.writer.write((HEAD + BODY) * 4)
        for _ in range(4):
            assert (await raw.answer())[0] == 200
        look_later(r, 10_000.0)
        raw.writer.write(HEAD + BODY)
        assert (await raw.answer())[0] == 200


async def send_much(scope: Scope, receive: Receive, send: Send) -> None:
    """An answer far larger than any kernel's buffers; closes behind it where the client asks for that."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % (1 << 25))]})
    await send({"type": "http.response.body", "body": bytes(1 << 25)})


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
async def test_a_client_that_takes_nothing_is_cut_even_while_its_connection_closes(connection: bytes) -> None:
    cuts: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = HttpServer(send_much, listener.detach(), GatewaySettings(unread_s=60.0), cuts.append)
    await server.start()
    assert server._check_timer is not None
    server._check_timer.cancel()  # the test itself looks
    reader, writer = await asyncio.open_connection(*address, limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: %s\r\n\r\n" % connection)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (some := server.connections) or not some[0].transport.get_write_buffer_size():
                await asyncio.sleep(0.001)
            (one,) = some
            assert isinstance(one, Connection)
            while one.cycle is None or not one.cycle.response_complete:
                await asyncio.sleep(0.001)
            assert one.transport.is_closing() == (connection == b"close")
            now_s = asyncio.get_running_loop().time()
            one.cut_if_slow(now_s)
            one.cut_if_slow(now_s + 59.0)
            left = one.transport.get_write_buffer_size()
            while one.transport.get_write_buffer_size() == left:
                await reader.read(1 << 20)
            one.cut_if_slow(now_s + 61.0)
            one.cut_if_slow(now_s + 120.0)
            assert (server.n_connections, cuts) == (1, []), "it has taken some meanwhile"
            one.cut_if_slow(now_s + 122.0)
            while server.n_connections:
                await asyncio.sleep(0.001)
        assert cuts == ["unread"]
    finally:
        writer.transport.abort()
        await server.stop()


async def test_the_look_itself_comes_by() -> None:
    async with rig(with_socket=True, head_s=0.0) as r, connected(r) as (raw,):
        assert (await raw.answer())[0] == 408


async def test_a_running_stream_is_never_slow() -> None:
    async with rig(with_scheduler=False, with_socket=True) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with connected(r) as (raw,):
            raw.writer.write(HEAD + BODY)
            await r.cluster.wait_until(lambda: scheduler.running)
            look_later(r, 10_000.0)
            scheduler.step(2)
            assert (await raw.answer())[0] == 200


async def test_one_connection_too_many_is_told_so_and_those_inside_are_served() -> None:
    async with rig(with_socket=True, max_connections=3) as r, connected(r, 3) as inside:
        await until_connected(r, 3)
        async with connected(r) as (late,):
            late.writer.write(HEAD + BODY)
            status, headers, answer = await late.answer()
            assert (status, answer["error"]["code"], headers[b"connection"]) == (503, "too_many_connections", b"close")
            assert int(headers[b"retry-after"]) >= 1
            assert await late.is_closed()
        for raw in inside:
            raw.writer.write(HEAD + BODY)
            assert (await raw.answer())[0] == 200
        inside[0].writer.close()
        await until_connected(r, 2)
        async with connected(r) as (next_one,):
            next_one.writer.write(HEAD + BODY)
            assert (await next_one.answer())[0] == 200


async def test_a_crowd_far_beyond_the_bound_is_cut_at_once() -> None:
    async with rig(with_socket=True, max_connections=1) as r, connected(r, 300) as raws:
        cut = [asyncio.ensure_future(raw.is_closed()) for raw in raws]
        async with asyncio.timeout(DEADLINE_S):
            while sum(one.done() for one in cut) < 300 - 1 - 256:
                await asyncio.sleep(0.001)
        for one in cut:
            one.cancel()


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_hangs_up_is_noticed_and_its_sequences_are_cancelled(size: int, is_streamed: bool) -> None:
    """Also behind a body so large that reading was paused; and the next request of a connection is not disturbed."""
    async with rig(with_scheduler=False, with_socket=True, max_length=8192) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = json.dumps(
            {"prompt": [7], "max_tokens": 50, "temperature": 0, "stream": is_streamed, "user": "x" * size}
        ).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        async with connected(r, 2) as (leaver, stayer):
            for raw in (leaver, stayer):
                raw.writer.write(HEAD + BODY)
            await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
            scheduler.step(2)
            for raw in (leaver, stayer):
                assert (await raw.answer())[0] == 200
                raw.writer.write(head + body)
            await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
            leaver.writer.transport.abort()
            await r.cluster.wait_until(lambda: len(scheduler.running) == 1)
            assert [cancel.why for cancel in scheduler.cancels] == ["client_left"]
            scheduler.step(50)
            async with asyncio.timeout(DEADLINE_S):
                assert b"200 OK" in await stayer.reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_closes_its_sending_side_counts_as_gone(is_streamed: bool) -> None:
    """To the server, a half-closed connection looks like a fully closed one (see docs/architecture.md)."""
    async with rig(with_scheduler=False, with_socket=True) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = json.dumps({"prompt": [7], "max_tokens": 50, "stream": is_streamed}).encode()
        async with connected(r) as (raw,):
            raw.writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            await r.cluster.wait_until(lambda: scheduler.running)
            raw.writer.write_eof()
            await r.cluster.wait_until(lambda: not scheduler.running)
            assert [cancel.why for cancel in scheduler.cancels] == ["client_left"]
            async with asyncio.timeout(DEADLINE_S):
                assert b"[DONE]" not in await raw.reader.read()


async def test_the_short_way_answers_for_broken_handlers_and_wrong_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r, r.http() as http:
        wrong = await http.get("/v1/completions")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
        assert (await http.post("/v1/nothing")).status_code == 404

        def broken(*_: object) -> None:
            raise KeyError("a bug")

        monkeypatch.setattr(r.gateway.manager, "accept", broken)
        answer = await http.post("/v1/completions", json={"prompt": [1], "max_tokens": 1})
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
        assert "KeyError" not in answer.text


def test_a_watch_that_has_ended_hears_nothing() -> None:
    heard: list[str] = []
    hangup = Hangup()
    first = hangup.watch(lambda: heard.append("first"))
    hangup.watch(lambda: heard.append("second"))
    first.cancel()
    first.cancel()
    hangup.notify()
    hangup.watch(lambda: heard.append("late"))
    assert heard == ["second", "late"]


async def test_an_order_to_stop_leaves_a_head_as_it_is_and_closes_after_the_answer() -> None:
    """A successor that goes on with the answer counts the bytes of its head."""
    came, goes_on = asyncio.Event(), asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        came.set()
        await goes_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = HttpServer(answer, listener.detach(), GatewaySettings(), lambda why: None)
    await server.start()
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await came.wait()
            (one,) = server.connections
            one.shutdown()
            goes_on.set()
            whole = await reader.read()
        assert b"connection: close" not in whole
        assert whole.endswith(b"\r\n\r\nok")
    finally:
        writer.close()
        await server.stop()
