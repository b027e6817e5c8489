"""A dead incarnation has read the beginning of a request. What follows on the connection is not a request, whatever it says."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any, cast

import pytest
from starlette.responses import Response

from actors.gateway.custody.hold import Custodian, HeldResponse, Hold, LeftConnection
from actors.gateway.custody.tcp_counts import tcp_counts
from actors.gateway.takeover.left_answers import LeftAnswers
from actors.gateway.takeover.resumed_connection import IdleConnection, ResumedConnection
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.http_connections import BODY, HEAD, HttpConnection
from tests.support.waiting import DEADLINE_S

SMUGGLED = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Holds(Custodian):
    """What the custodian holds, by key."""

    def __init__(self) -> None:
        self.responses: dict[str, HeldResponse | None] = {}

    def put(self, hold: Hold) -> None:
        self.responses[hold.key] = hold.response

    def drop(self, hold: Hold) -> None:
        del self.responses[hold.key]


class Custody:
    """A custodian with one connection of the dead incarnation."""

    def __init__(self, left: LeftConnection) -> None:
        self._left = left

    async def claim(self) -> list[LeftConnection]:
        return [self._left]

    def drop_claimed(self) -> None:
        pass


async def _left(response: HeldResponse, read: bytes) -> tuple[HttpConnection, LeftConnection]:
    """A client, and its connection, of which the dead incarnation has read these bytes after it was held."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = HttpConnection(*await asyncio.open_connection(*listener.getsockname()))
        one = listener.accept()[0]
    one.setblocking(False)
    client.writer.write(read)
    async with asyncio.timeout(DEADLINE_S):
        while (counts := tcp_counts(one.fileno())) is None or not await _has_read(one, counts.read_bytes, len(read)):
            await asyncio.sleep(0.001)
    return client, LeftConnection("key", one, response)


async def _has_read(one: socket.socket, n_read: int, n: int) -> bool:
    return n_read == n or len(await asyncio.get_running_loop().sock_recv(one, n - n_read)) == n - n_read


async def _go_on(r: Rig, left: LeftConnection) -> None:
    answers = LeftAnswers(cast(Any, Custody(left)), lambda error: pytest.fail(str(error)))
    await answers.claim()
    answers.go_on(cast(Any, None), r.gateway.servers.http)
    await answers.wait()


async def test_an_idle_connection_is_closed_if_a_request_had_begun() -> None:
    async with rig(with_socket=True) as r:
        client, left = await _left(HeldResponse("", "", -1, 0, 0, keeps_alive=True), HEAD)
        client.writer.write(SMUGGLED)
        await _go_on(r, left)
        assert await client.is_closed()
        client.writer.close()


async def test_an_idle_connection_goes_on_at_a_whole_request_and_stays_one_at_the_custodian() -> None:
    async with rig(with_socket=True) as r:
        client, left = await _left(HeldResponse("", "", -1, 0, 0, keeps_alive=True), b"")
        client.writer.write(HEAD + BODY)
        await _go_on(r, left)
        assert (await client.answer())[0] == 200
        client.writer.close()
        holds, server = Holds(), r.gateway.servers.http
        assert server is not None
        client, left = await _left(HeldResponse("", "", -1, 0, 0, keeps_alive=True), b"")
        await server.adopt(left.socket, lambda limits, _, **uvicorn: IdleConnection(left, limits, holds, **uvicorn))
        assert holds.responses == {"key": left.response}
        client.writer.write(HEAD + BODY)
        assert (await client.answer())[0] == 200
        (response,) = holds.responses.values()
        assert list(holds.responses) == ["key"]
        assert response is not None
        assert response.request, "the next incarnation goes on with this answer"
        assert response.read_bytes == len(HEAD + BODY)
        client.writer.close()


@pytest.mark.parametrize("rest", [BODY, SMUGGLED])
async def test_an_answer_ends_undisturbed_and_then_the_connection_is_closed(rest: bytes) -> None:
    is_read = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await is_read.wait()
        await Response(b"the answer")(scope, receive, send)

    class Watched(ResumedConnection):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if data == rest:
                is_read.set()

    async with rig(with_socket=True) as r:
        client, left = await _left(HeldResponse("a", "/v1/generate", -1, 0, 0, keeps_alive=True), HEAD)
        client.writer.write(rest)
        assert r.gateway.servers.http is not None
        await r.gateway.servers.http.adopt(left.socket, partial(Watched, left, app, 0, False))
        async with asyncio.timeout(DEADLINE_S):
            head, body = (await client.reader.read()).split(b"\r\n\r\n", 1)
        assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"the answer")
        client.writer.close()
