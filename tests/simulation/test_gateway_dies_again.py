"""A gateway dies, and its successor dies while it takes the plain connections over: no connection is cut, no byte is wrong."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from actors.gateway.http.server import HttpServer
from actors.gateway.takeover import left_answers
from tests.support.depth import DEPTH
from tests.support.simulation.clients.planned_requests import ClientKind
from tests.support.simulation.edges import Fault
from tests.support.simulation.faults.harm_of_streams import HarmOfStreams, simulate_streams

pytestmark = pytest.mark.seeds

_ADOPTION_S = 0.15  # virtual time for two connections, as on a busy machine: others have new tokens meanwhile
_EDGE = "gateway writes a connection"
_NTH = (0, 1, 3, 6, 9, 12, 15)[:: 2 if DEPTH == 1 else 1]


class DiesAgain(HarmOfStreams):
    """Kills the gateway amid the streams, and its successor at one of its first writes."""

    nth: ClassVar[int]

    async def run(self) -> None:
        await self.until_all(0.0)
        self.kill("gateway/0")
        self._machine.edges.aim(_EDGE, Fault.DIES_AFTER, self.nth)
        await self.until(lambda: bool(self._machine.edges.hit))
        assert not self._machine.has_lost_connections, "the oracle would let connections be cut"


async def _adopt_slowly(
    server: HttpServer, client: socket.socket, make: Callable[..., Any], honest: Any = HttpServer.adopt
) -> None:
    await asyncio.sleep(_ADOPTION_S)
    await honest(server, client, make)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("nth", _NTH)
def test_no_plain_connection_is_cut(nth: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpServer, "adopt", _adopt_slowly)
    monkeypatch.setattr(left_answers, "_CONNECTION_S", left_answers._TURN_S / 2.5)  # two in a turn
    monkeypatch.setattr(DiesAgain, "nth", nth, raising=False)
    simulate_streams(DiesAgain, monkeypatch, client_kind=ClientKind.PLAIN, n=n)
