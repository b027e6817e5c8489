"""A dead incarnation has read the beginning of a request. What follows on the connection is not a request, whatever it says."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from starlette.responses import Response

from actors.gateway.custody.hold import Custodian, Held, HeldResponse, Hold, LeftConnection
from actors.gateway.custody.kept_request import KeptRequest
from actors.gateway.custody.tcp_counts import tcp_counts
from actors.gateway.takeover.left_answers import LeftAnswers
from actors.gateway.takeover.resumed_connection import IdleConnection, RepeatedConnection, ResumedConnection
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.http_connections import BODY, HEAD, HttpConnection
from tests.support.waiting import DEADLINE_S

SMUGGLED = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Holds(Custodian):
    """What the custodian holds, by key."""

    def __init__(self) -> None:
        self.responses: dict[str, HeldResponse | None] = {}

    def put(self, hold: Held) -> None:
        self.responses[hold.key] = hold.response if isinstance(hold, Hold) else None

    def drop(self, hold: Held) -> None:
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


def _computed_again(left: LeftConnection, message: bytes) -> LeftConnection:
    """The connection with the bytes of its request, of whose answer no byte was sent."""
    kept = KeptRequest.of(left.key, message)
    assert kept is not None
    return replace(left, request_fd=kept.fd)


async def test_an_answer_is_computed_again_from_the_bytes_of_its_request() -> None:
    """The connection is held as before until the answer is complete. Then it serves the next request."""
    response = HeldResponse("e", "/v1/generate", -1, 0, len(HEAD + BODY), keeps_alive=True, n_tries=1)
    async with rig(with_socket=True) as r:
        client, left = await _left(response, HEAD + BODY)
        left, holds, server = _computed_again(left, HEAD + BODY), Holds(), r.gateway.servers.http
        assert server is not None
        assert left.request_fd is not None
        seen = list[dict[str, HeldResponse | None]]()
        held = holds.put

        def put(hold: Held) -> None:
            held(hold)
            seen.append(dict(holds.responses))

        holds.put = put  # pyright: ignore[reportAttributeAccessIssue]
        repeated = partial(RepeatedConnection, left, left.request_fd)
        await server.adopt(left.socket, lambda limits, _, **uvicorn: repeated(limits, holds, **uvicorn))
        assert (await client.answer())[0] == 200
        assert [one for one in seen if set(one) == {"key", "key/request"}], "the bytes stay at the custodian"
        assert seen[0]["key"] == msgspec.structs.replace(response, n_tries=2), "how often it was tried is known to the next one"
        assert "key/request" not in holds.responses
        client.writer.write(HEAD + BODY)
        assert (await client.answer())[0] == 200
        assert holds.responses["key"] is not None
        assert holds.responses["key"].read_bytes == 2 * len(HEAD + BODY)
        client.writer.close()


@pytest.mark.parametrize(
    ("base_bytes", "read_bytes", "n_tries", "has_bytes"), [(-1, 0, 1, True), (0, 1, 1, True), (0, 0, 5, True), (0, 0, 1, False)]
)
async def test_an_answer_is_not_computed_again_where_that_would_be_wrong_or_too_often(
    base_bytes: int, read_bytes: int, n_tries: int, has_bytes: bool
) -> None:
    """Bytes were sent, or read behind the request, or five gateways have died with the request, or its bytes are gone."""
    response = HeldResponse("e", "/v1/generate", -1, base_bytes, read_bytes, keeps_alive=True, n_tries=n_tries)
    async with rig(with_socket=True) as r:
        client, left = await _left(response, b"")
        await _go_on(r, _computed_again(left, HEAD + BODY) if has_bytes else left)
        assert await client.is_closed()
        client.writer.close()
