"""Goes on with the answers that a dead incarnation was sending, each on its own connection.

An answer goes on if its request is in the journal of this gateway, or of the one to which it was forwarded: a stream at the
byte at which it was cut, an answer that is sent as a whole from its beginning. An answer of which nothing was sent, and which
is a function of its request alone, is computed again from the bytes of the request. Every other connection is closed, as it
would have been at the death of its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial

import structlog

from actors.gateway.custody.gateway_custody import GatewayCustody
from actors.gateway.custody.hold import HeldResponse, LeftConnection
from actors.gateway.custody.tcp_counts import tcp_counts
from actors.gateway.http.answers.stream_bytes import CHUNKED, Begun
from actors.gateway.http.browser_rules import granting
from actors.gateway.http.connection import Connection
from actors.gateway.http.endpoint import Services
from actors.gateway.http.endpoints.generate import BATCH_PATH
from actors.gateway.http.endpoints.rebuilt import Rebuilt, rebuild_response
from actors.gateway.http.gateways.forwarded_call import ForwardedCall
from actors.gateway.http.gateways.forwarding import Forwarded
from actors.gateway.http.server import HttpServer
from actors.gateway.journal.retained import RetainedRequests
from actors.gateway.requests.request import Request
from actors.gateway.takeover.resumed_connection import CLOSE, IdleConnection, RepeatedConnection, ResumedConnection

# of one turn of the event loop, as estimated. Each turn sends the tokens of those that go on already, too. With hundreds of
# streams that takes longer than to let some more go on, so few turns let the last ones go on soon.
_TURN_S = 0.015
_CONNECTION_S, _TOKEN_S = 0.0002, 1e-6
_MOST_TRIES = 5  # of a request that no journal has: one that kills every gateway must end


class LeftAnswers:
    """The answers of a dead incarnation, on their connections. They go on while the gateway serves already, a few in each turn
    of the event loop, and schedulers compute the next tokens meanwhile.
    """

    def __init__(self, custody: GatewayCustody | None, on_failure: Callable[[BaseException], None]) -> None:
        """`custody` None: nobody has kept the connections. `on_failure`: called with an error that stopped all of this."""
        self._custody, self._on_failure = custody, on_failure
        self._left: list[LeftConnection] = []
        self._requests: dict[str, Request] = {}
        self._task: asyncio.Task[None] | None = None

    async def claim(self) -> None:
        """Get the connections from the custodian."""
        if self._custody is not None:
            self._left = await self._custody.claim()

    @property
    def requests(self) -> set[str]:
        """The ids of the requests to which they belong."""
        return {left.response.request for left in self._left}

    def hold_batches(self, retained: RetainedRequests) -> None:
        """Let what has ended of the batches on these connections be kept until they go on. `retained` has nothing yet."""
        for batch in self._batches():
            retained.hold(batch)

    def _batches(self) -> list[str]:
        return [left.response.request for left in self._left if left.response.path == BATCH_PATH]

    def remember(self, find: Callable[[str], Request | None]) -> None:
        """Hold the unfinished requests of these connections, which `find` finds by their ids. One without a key is forgotten at
        its end, and that may come before its connection goes on."""
        self._requests = {one: request for one in self.requests if (request := find(one)) is not None}

    def go_on(self, services: Services, server: HttpServer | None) -> None:
        """Begin to serve the connections. When all are served, the custodian is told to drop the others."""
        self._task = asyncio.create_task(self._run(services, server))

    async def wait(self) -> None:
        """Wait until every connection is adopted or closed. That is quick, because nothing here waits for a client."""
        if self._task is not None:
            await self._task

    def unread_by_connection(self, server: HttpServer | None) -> Mapping[Hashable, int]:
        """How many bytes each client of the server has not read yet. Until all connections are adopted, they count as one with
        1 byte."""
        if self._left and (self._task is None or not self._task.done()):
            return {self: 1}
        return {} if server is None else server.unread_by_connection()

    async def _run(self, services: Services, server: HttpServer | None) -> None:
        try:
            if server is not None:
                await _go_on_all(self._left, self._requests, services, server)
            self._requests = {}
            for batch in self._batches():
                services.manager.finished.retained.release(batch, asyncio.get_running_loop().time())
            if self._custody is not None:
                self._custody.drop_claimed()
        except Exception as error:
            self._on_failure(error)


async def _go_on_all(
    left_connections: list[LeftConnection], requests: Mapping[str, Request], services: Services, server: HttpServer
) -> None:
    adopted: list[bool] = []
    for n in turns(_cost_s(left, services) for left in left_connections):
        some = left_connections[len(adopted) : len(adopted) + n]
        adopted += await asyncio.gather(*(_go_on(left, requests, services, server) for left in some))
    if left_connections:
        structlog.get_logger().info("connections of the dead gateway", found=len(adopted), resumed=sum(adopted))


def turns(costs_s: Iterable[float], turn_s: float = _TURN_S) -> Iterator[int]:
    """How many of these, in order, are done in each turn: so many that they cost `turn_s` together, at least one."""
    n, sum_s = 0, 0.0
    for cost_s in costs_s:
        if n and sum_s + cost_s > turn_s:
            yield n
            n, sum_s = 0, 0.0
        n, sum_s = n + 1, sum_s + cost_s
    if n:
        yield n


def _cost_s(left: LeftConnection, services: Services) -> float:
    if not left.response.request or left.response.n_tries:
        return _CONNECTION_S
    if (running := services.manager.unfinished.find(left.response.request)) is not None:
        return _CONNECTION_S + _TOKEN_S * len(running.stream_items)
    kept = services.manager.finished.retained.find(left.response.request)
    return _CONNECTION_S + (0.0 if kept is None else _TOKEN_S * kept.finish.n_tokens)


async def _go_on(left: LeftConnection, requests: Mapping[str, Request], services: Services, server: HttpServer) -> bool:
    """Serve one connection, with the rest of its answer if one was under way; False if it had to be closed: also where nothing
    was under way and the dead incarnation has read the beginning of a request, because what follows is not one."""
    counts = tcp_counts(left.socket.fileno())
    if counts is None:
        left.close()
        return False
    n_written, is_at_boundary = counts.written_bytes - left.response.base_bytes, counts.read_bytes == left.response.read_bytes
    if is_at_boundary and not left.response.request:  # nothing was under way
        return await _adopt(left, server, partial(IdleConnection, left))
    if is_at_boundary and left.request_fd is not None and not n_written and left.response.n_tries < _MOST_TRIES:
        return await _adopt(left, server, partial(RepeatedConnection, left, left.request_fd))
    answer = await _answer(left, n_written, requests, services) if left.response.request else None
    if answer is None:
        about = {"written_bytes": n_written, "read_bytes": counts.read_bytes, "noted_read_bytes": left.response.read_bytes}
        log = structlog.get_logger()
        log.warning("connection cannot go on, it is closed", request=left.response.request, path=left.response.path, **about)
        left.close()
        return False
    n_again = n_written - answer.n_passed_bytes
    return await _adopt(left, server, partial(ResumedConnection, left, answer.app, n_again, is_at_boundary))


async def _adopt(left: LeftConnection, server: HttpServer, make: Callable[..., Connection]) -> bool:
    """Give a connection to the server; False if its client has left."""
    try:
        await server.adopt(left.socket, make)
    except OSError:  # the client has left
        left.close()
        return False
    return True


async def _answer(left: LeftConnection, n_written: int, requests: Mapping[str, Request], services: Services) -> Rebuilt | None:
    """What makes the response again; None when it cannot be made, or only with other bytes."""
    response = left.response
    if n_written < 0 or response.n_tries:
        return None
    begun = Begun(0, n_written, _n_more_head_bytes(response), response.run, not response.has_chunks)
    is_known = response.request in requests or services.admission.knows(response.request)
    if (socket := services.owners.socket_of(response.request)) and not is_known:
        call = ForwardedCall(response.request, response.path, response.start)
        return Rebuilt(Forwarded(socket, call, services.settings.request_timeout_s, left.cut, begun=begun))
    request = services.manager.find(response.request) or requests.get(response.request)
    if request is None:
        return None
    return rebuild_response(services, request, response.path, response.start, begun, is_whole=False)


def _n_more_head_bytes(response: HeldResponse) -> int:
    """By how much the head of this response is longer than that of a plain one on a kept connection."""
    headers = granting(response.origin) if response.origin else []
    n_granting = sum(len(name) + len(value) + 4 for name, value in headers)
    return n_granting + (0 if response.keeps_alive else len(CLOSE)) - (0 if response.has_chunks else len(CHUNKED))
