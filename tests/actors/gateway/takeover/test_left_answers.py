"""Connections of a dead incarnation go on while the gateway serves already."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.custody.hold import HeldResponse, LeftConnection
from actors.gateway.requests.request_spec import Ended
from actors.gateway.settings import GatewaySettings
from actors.gateway.takeover.left_answers import LeftAnswers, _answer, turns
from tests.support.answers.written_answer import written

N = 300


class Custody:
    """A custodian with N connections on which nothing is under way. `dropped_after`: connections that went on before it was
    told to drop the others."""

    def __init__(self, server: Server) -> None:
        self._server, self.dropped_after = server, -1
        self.sockets: list[socket.socket] = []

    async def claim(self) -> list[LeftConnection]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(N):
                self.sockets += [socket.create_connection(listener.getsockname()), listener.accept()[0]]
        response = HeldResponse("", "", -1, 0, 0, keeps_alive=True)
        return [LeftConnection(str(nth), one, response) for nth, one in enumerate(self.sockets[1::2])]

    def drop_claimed(self) -> None:
        self.dropped_after = self._server.n_adopted


class Server:
    """Counts the connections that it adopts, in each turn of the event loop."""

    def __init__(self) -> None:
        self.n_adopted = 0

    async def adopt(self, client: socket.socket, make: object) -> None:
        self.n_adopted += 1

    def unread_by_connection(self) -> dict[str, int]:
        return {}


async def test_the_event_loop_has_other_turns_while_connections_go_on() -> None:
    server = Server()
    custody = Custody(server)
    left = LeftAnswers(cast(Any, custody), lambda error: None)
    await left.claim()
    left.go_on(cast(Any, None), cast(Any, server))
    counts = list[int]()
    while server.n_adopted < N:
        counts.append(server.n_adopted)
        assert left.unread_by_connection(cast(Any, server)), "a drain waits for connections that are not served yet"
        await asyncio.sleep(0)
    await left.wait()
    assert not left.unread_by_connection(cast(Any, server))
    assert len(set(counts)) > 3
    assert custody.dropped_after == N, "the custodian is told to drop what nobody goes on with, so all others come first"
    for one in custody.sockets:
        one.close()


async def test_an_error_is_reported() -> None:
    class Broken(Server):
        async def adopt(self, client: socket.socket, make: object) -> None:
            raise RuntimeError("adopt")

    errors: list[BaseException] = []
    custody = Custody(Broken())
    left = LeftAnswers(cast(Any, custody), errors.append)
    await left.claim()
    left.go_on(cast(Any, None), cast(Any, Broken()))
    await left.wait()
    assert [str(error) for error in errors] == ["adopt"]
    assert custody.dropped_after == -1
    for one in custody.sockets:
        one.close()


@given(st.lists(st.floats(0.0, 2.0)))
def test_a_turn_costs_no_more_than_its_share_unless_one_thing_does(costs_s: list[float]) -> None:
    counts, first = list(turns(costs_s, 1.0)), 0
    assert sum(counts) == len(costs_s)
    for n in counts:
        assert n == 1 or sum(costs_s[first : first + n]) <= 1.0
        assert first + n == len(costs_s) or sum(costs_s[first : first + n + 1]) > 1.0, "no turn is cut short"
        first += n


async def test_a_request_that_has_ended_before_its_connection_goes_on_is_answered() -> None:
    """One without a key is forgotten at its end, and a short one ends before hundreds of connections have gone on."""
    request = written(["Hi"], "completion", None, Ended(reason="stop"))
    ours, theirs = socket.socketpair()
    response = HeldResponse(request.spec.request, "/v1/completions", -1, 0, 0, keeps_alive=True)
    services = SimpleNamespace(
        owners=SimpleNamespace(socket_of=lambda request_id: ""),
        admission=SimpleNamespace(knows=lambda request_id: False),
        manager=SimpleNamespace(find=lambda request_id: None, lasting=None),
        settings=GatewaySettings(),
        model_of=lambda request: None,
    )
    left = LeftAnswers(None, lambda error: None)
    left._left = [LeftConnection("one", ours, response)]
    assert await _answer(left._left[0], 0, left._requests, cast(Any, services)) is None
    left.remember({request.spec.request: request}.get)
    assert await _answer(left._left[0], 0, left._requests, cast(Any, services)) is not None
    ours.close()
    theirs.close()
