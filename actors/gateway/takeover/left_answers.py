"""Goes on with the answers that a dead incarnation was sending, each on the connection that it came by.

An answer goes on if its request is in the journal: a stream at the byte at which it was cut, an answer that is sent as a whole
from its beginning. Every other connection is closed, as it would have been at the death of its process.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog
from starlette.types import ASGIApp

from actors.gateway.custody.hold import LeftConnection
from actors.gateway.custody.tcp_counts import TcpCounts, tcp_counts
from actors.gateway.http.endpoint import Services
from actors.gateway.http.endpoints.generate import BATCH_PATH
from actors.gateway.http.endpoints.streams import events_after
from actors.gateway.http.openai_chunks import whole_body
from actors.gateway.http.plain_bodies import batch_body, generate_body
from actors.gateway.http.server import HttpServer
from actors.gateway.http.sse import WholeAnswer
from actors.gateway.http.stream_events import failure_of
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.takeover.resumed_connection import ResumedConnection


async def go_on(left_connections: list[LeftConnection], services: Services, server: HttpServer) -> int:
    """Serve the connections of a dead incarnation; returns how many of them go on."""
    adopted = await asyncio.gather(*(_go_on(left, services, server) for left in left_connections))
    if left_connections:
        structlog.get_logger().info("connections of the dead gateway", found=len(adopted), resumed=sum(adopted))
    return sum(adopted)


async def _go_on(left: LeftConnection, services: Services, server: HttpServer) -> bool:
    counts = tcp_counts(left.socket.fileno())
    answer = None if counts is None else _answer(left, counts, services)
    if counts is None or answer is None:
        left.close()
        return False
    n_written, is_at_boundary = counts.written_bytes - left.response.base_bytes, counts.read_bytes == left.response.read_bytes
    try:
        await server.adopt(left.socket, partial(ResumedConnection, left, answer, n_written, is_at_boundary))
    except OSError:  # the client has left
        left.close()
        return False
    return True


def _answer(left: LeftConnection, counts: TcpCounts, services: Services) -> ASGIApp | None:
    """What makes the whole response again; None when it cannot be made, or only with other bytes."""
    response, n_written = left.response, counts.written_bytes - left.response.base_bytes
    request = services.desk.find(response.request)
    if request is None or n_written < 0:
        return None
    if response.start < 0:  # its body says how long it took, so it is another one each time
        return None if n_written else _whole(services, request, response.path)
    if n_written and not request.order.is_resumable:
        return None  # its tokens are not in the journal, and computed again they may come in another order
    if n_written and not request.n_generated and failure_of(request) is not None:
        return None  # either an error or a stream had begun: nobody knows
    try:
        return events_after(services, request, response.start, "start")
    except Refusal:  # the journal has fewer events than the client: its disk has lost some
        return None


def _whole(services: Services, request: Request, path: str) -> ASGIApp:
    model, name = services.model, services.settings.model_name

    def render() -> bytes:
        if request.order.api == "generate":
            return batch_body(request) if path == BATCH_PATH else generate_body(request)
        return whole_body(request, name, model)

    return WholeAnswer(services.desk, request, render, services.settings.request_timeout_s)
