"""Goes on with the answers that a dead incarnation was sending, each on its own connection.

An answer goes on if its request is in the journal of this gateway, or of the one to which it was forwarded: a stream at the
byte at which it was cut, an answer that is sent as a whole from its beginning. Every other connection is closed, as it would
have been at the death of its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog
from starlette.types import ASGIApp

from actors.gateway.custody.hold import HeldResponse, LeftConnection
from actors.gateway.custody.tcp_counts import tcp_counts
from actors.gateway.http.browsers.rules import granting
from actors.gateway.http.connection import Connection
from actors.gateway.http.endpoint import Services
from actors.gateway.http.endpoints.rebuilt import rebuild_response
from actors.gateway.http.gateways.forwarded_call import ForwardedCall
from actors.gateway.http.gateways.forwarding import Forwarded
from actors.gateway.http.server import HttpServer
from actors.gateway.http.stream_events import N_DATE_BYTES, Begun
from actors.gateway.takeover.resumed_connection import CLOSE, ResumedConnection


async def go_on(left_connections: list[LeftConnection], services: Services, server: HttpServer) -> int:
    """Serve the connections of a dead incarnation; returns how many of them go on."""
    adopted = await asyncio.gather(*(_go_on(left, services, server) for left in left_connections))
    if left_connections:
        structlog.get_logger().info("connections of the dead gateway", found=len(adopted), resumed=sum(adopted))
    return sum(adopted)


async def _go_on(left: LeftConnection, services: Services, server: HttpServer) -> bool:
    counts = tcp_counts(left.socket.fileno())
    if counts is not None and not left.response.request:
        return await _adopt(left, server, Connection)  # nothing was under way
    answer = None if counts is None else await _answer(left, counts.written_bytes - left.response.base_bytes, services)
    if counts is None or answer is None:
        left.close()
        return False
    n_written, is_at_boundary = counts.written_bytes - left.response.base_bytes, counts.read_bytes == left.response.read_bytes
    return await _adopt(left, server, partial(ResumedConnection, left, answer, n_written, is_at_boundary))


async def _adopt(left: LeftConnection, server: HttpServer, make: Callable[..., Connection]) -> bool:
    try:
        await server.adopt(left.socket, make)
    except OSError:  # the client has left
        left.close()
        return False
    return True


async def _answer(left: LeftConnection, n_written: int, services: Services) -> ASGIApp | None:
    """What makes the whole response again; None when it cannot be made, or only with other bytes."""
    response = left.response
    if n_written < 0:
        return None
    if (socket := services.owners.socket_of(response.request)) and not services.admission.knows(response.request):
        call = ForwardedCall(response.request, response.path, response.start)
        begun = Begun(0, n_written, _n_more_head_bytes(response) - N_DATE_BYTES, response.run)
        return Forwarded(socket, call, services.settings.request_timeout_s, left.cut, begun=begun)
    request = services.manager.find(response.request)
    begun = Begun(0, n_written, _n_more_head_bytes(response), response.run)
    return None if request is None else rebuild_response(services, request, response.path, response.start, begun)


def _n_more_head_bytes(response: HeldResponse) -> int:
    headers = granting(response.origin) if response.origin else []
    return sum(len(name) + len(value) + 4 for name, value in headers) + (0 if response.keeps_alive else len(CLOSE))
