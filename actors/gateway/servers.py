"""The servers of one gateway process: HTTP and ZeroMQ for clients, and HTTP for the other gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path

from starlette.types import ASGIApp

from actors.gateway.admission.caller import forwarded_app
from actors.gateway.custody.gateway_custody import GatewayCustody
from actors.gateway.http.api import build_app
from actors.gateway.http.endpoint import Services
from actors.gateway.http.gateways.forwarded_call import ForwardedConnection
from actors.gateway.http.server import HttpServer, address_of
from actors.gateway.journal.retained import RetainedRequests
from actors.gateway.other_gateways.unix_http import listen_for_gateways
from actors.gateway.page.feed import LiveFeed
from actors.gateway.requests.request import Request
from actors.gateway.settings import GatewaySettings
from actors.gateway.takeover.leaving import leave_connections
from actors.gateway.takeover.left_answers import LeftAnswers
from actors.gateway.tls.certificates import Certificates
from actors.gateway.zeromq.server import ZmqServer
from messages.lifecycle.spawn_spec import LISTEN_SOCKET


class GatewayServers:
    """A server is None until `open`, and stays None if the settings do not ask for it. The connections that the last
    incarnation of this gateway has left are served here too.
    """

    app: ASGIApp  # what HTTP clients reach; set by `open`

    def __init__(
        self,
        settings: GatewaySettings,
        custody: GatewayCustody | None,
        on_cut: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`custody`: keeps the connections for the next incarnation; None: nobody does. `on_cut`: a connection was closed, for
        this reason. `on_failure`: the connections of the last incarnation cannot be served.
        """
        self._settings, self._custody, self._on_cut = settings, custody, on_cut
        self._left = LeftAnswers(custody, on_failure)
        self._certificates = Certificates(settings) if settings.tls_cert else None
        self._on_failure = on_failure
        self._opening: asyncio.Task[str] | None = None  # where `open` has not waited
        self.http: HttpServer | None = None
        self.for_gateways: HttpServer | None = None  # for calls that other gateways forward
        self.zeromq: ZmqServer | None = None
        self.live: LiveFeed | None = None  # its viewers leave before a server waits for them

    @property
    def n_http_connections(self) -> int:
        """Open connections of HTTP clients."""
        return 0 if self.http is None else self.http.n_connections

    async def claim(self) -> None:
        """Take the connections of the last incarnation from the custodian."""
        await self._left.claim()

    @property
    def claimed_requests(self) -> set[str]:
        """The ids of the requests whose answers were on these connections."""
        return self._left.requests

    def hold_batches(self, retained: RetainedRequests) -> None:
        """Let what has ended of the batches on these connections be kept until they go on. `retained` has nothing yet."""
        self._left.hold_batches(retained)

    def remember_requests(self, find: Callable[[str], Request | None]) -> None:
        """Hold those of them that `find` finds until their connections go on."""
        self._left.remember(find)

    async def open(self, services: Services, incarnation: int, descriptors: Mapping[str, int], *, waits: bool = True) -> str:
        """Listen for everyone, and go on with the connections of the last incarnation.

        `descriptors`: those of the process, by name; the socket for HTTP clients may be among them. Returns its address as
        text, "" without one.
        `waits` False: return before they listen. Clients wait in the queue of the socket, and what the last incarnation had
        under way is submitted meanwhile: its streams wait for schedulers first, then for their connections.
        """
        listen_fd = descriptors.get(LISTEN_SOCKET)
        self._opening = asyncio.create_task(self._open(services, incarnation, listen_fd, first_turns=0 if waits else 1))
        if waits or listen_fd is None:
            return await self._opening
        self._opening.add_done_callback(self._opened)
        return address_of(listen_fd, has_tls=self._certificates is not None)

    def _opened(self, opening: asyncio.Task[str]) -> None:
        if not opening.cancelled() and (error := opening.exception()) is not None:
            self._on_failure(error)

    async def wait_open(self) -> None:
        """Wait until everything that `open` opens is open."""
        if self._opening is not None:
            await asyncio.wait({self._opening})

    def abandon(self) -> None:
        """Open nothing more."""
        if self._opening is not None:
            self._opening.cancel()

    async def _open(self, services: Services, incarnation: int, listen_fd: int | None, first_turns: int) -> str:
        for _ in range(first_turns):
            await asyncio.sleep(0)
        if self._settings.zeromq_endpoint:
            admission, manager, summary = services.admission, services.manager, services.status.summary
            self.zeromq = ZmqServer(
                self._settings, incarnation, admission, manager, services.owners, summary, services.caches,
                services.embeddings, services.keys,
            )  # fmt: skip
            self.zeromq.open()
        self.app, self.live = build_app(services), services.live.feed
        if self._custody is not None:
            self._custody.open()
        await self._open_for_gateways(services)
        address = ""
        if listen_fd is not None:
            note = services.manager.refusals.note
            self.http = HttpServer(
                self.app,
                listen_fd,
                self._settings,
                self._on_cut,
                self._custody,
                on_refused=note,
                certificates=self._certificates,
            )
            address = await self.http.start()
        self._left.go_on(services, self.http)
        return address

    async def _open_for_gateways(self, services: Services) -> None:
        """Take the calls that other gateways forward, if there are any."""
        if path := services.owners.own_socket:
            app, listen_fd = forwarded_app(build_app(services, for_gateways=True)), listen_for_gateways(Path(path))
            self.for_gateways = HttpServer(app, listen_fd, self._settings, self._on_cut, protocol=ForwardedConnection)
            await self.for_gateways.start()

    def unread_by_connection(self) -> Mapping[Hashable, int]:
        """Bytes that HTTP clients have not read yet, by connection: those that a drain waits for."""
        return self._left.unread_by_connection(self.http)

    async def leave(self) -> bool:
        """Leave the HTTP connections to the next incarnation; returns False, having done nothing, if nobody keeps them."""
        await self.wait_open()
        self._dismiss_viewers()
        return await leave_connections(self.http, self._custody)

    async def close(self) -> None:
        """Close all servers and their connections."""
        await self.wait_open()
        self._dismiss_viewers()
        await self._left.wait()
        # together: what one gateway forwards ends with the answer of another one that ends now
        await asyncio.gather(*[server.stop() for server in (self.http, self.for_gateways) if server is not None])
        if self._custody is not None:
            self._custody.close()
        if self.zeromq is not None:
            await self.zeromq.close()

    def _dismiss_viewers(self) -> None:
        if self.live is not None:
            self.live.close()
