"""uvicorn inside an actor: on an inherited socket, on the actor's event loop, without uvicorn's signal handling."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from actors.gateway.connections.caller_connections import ConnectionPlace
from actors.gateway.custody.hold import Custodian
from actors.gateway.http.browser_rules import browser_rules
from actors.gateway.http.connection import Connection
from actors.gateway.http.connection_limits import ConnectionLimits
from actors.gateway.other_gateways.unix_http import listen_for_gateways
from actors.gateway.requests.refusals import Refusal
from actors.gateway.settings import GatewaySettings
from actors.gateway.tls.certificates import Certificates
from actors.gateway.tls.handshake import TlsDoor
from messages.descriptors.open_files import FILES_BESIDE_CONNECTIONS, most_open_files

_BACKLOG = 2048
_START_POLL_S = 0.0005  # streams of a dead incarnation wait for it
_SETTLE_POLL_S = 0.005
_CHECK_S = 1.0  # time between two checks for slow clients
_DATE_S = 1.0  # time between two dates of answers


class _QuietServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end = asyncio.Event()

    def end(self) -> None:
        """Let `serve` end."""
        self.should_exit = True
        self._end.set()

    async def main_loop(self) -> None:
        """Set the date of answers once a second. uvicorn's own loop looks ten times a second whether it shall end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_S):
                    await self._end.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals: the supervisor decides when this process ends."""
        yield


def _config(app: ASGIApp, connection: Any, settings: GatewaySettings) -> uvicorn.Config:
    """`connection`: makes the protocol of each connection."""
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_s)),
    )


def address_of(listen_fd: int, *, has_tls: bool) -> str:
    """The address of a listening socket, such as "http://127.0.0.1:8000"; the path of a unix socket."""
    with socket.socket(fileno=os.dup(listen_fd)) as listener:
        name = listener.getsockname()
    return name if isinstance(name, str) else f"{'https' if has_tls else 'http'}://{name[0]}:{name[1]}"


class HttpServer:
    """Serves one ASGI application on a listening socket given by its descriptor."""

    def __init__(
        self,
        app: ASGIApp,
        listen_fd: int,
        settings: GatewaySettings,
        on_cut: Callable[[str], None],
        custodian: Custodian | None = None,
        protocol: type[Connection] = Connection,
        on_refused: Callable[[Refusal], object] = lambda refusal: None,
        certificates: Certificates | None = None,
    ) -> None:
        """`on_cut` is called with the reason whenever a client is disconnected: "slow", "unread", "many", "caller", "files",
        "head" or "tls".

        `custodian` holds the connections whose answers are under way; None: nobody does. `protocol`: of the connections that
        are accepted. `on_refused` is called with the refusal of each request that never reaches the application.
        `certificates` None: plain HTTP.
        """
        self._socket = socket.socket(fileno=listen_fd)
        self._socket.setblocking(False)
        self._path: str = self._socket.getsockname() if self._socket.family == socket.AF_UNIX else ""
        self._shutdown_s = settings.shutdown_s
        rules = browser_rules(self._socket, settings)
        self._custodian, self._protocol, self._wanted_connections = custodian, protocol, settings.max_connections
        self._update_limit()
        self._limits = ConnectionLimits.of(
            settings, lambda: self._most_connections, on_cut, rules, on_refused, are_clients=not self._path
        )
        self._server = _QuietServer(_config(app, partial(protocol, self._limits, custodian), settings))
        door = self._socket, self._after_handshake, self._limits.callers, settings.head_s, on_cut
        self._tls = None if certificates is None else TlsDoor(certificates, *door)
        self._task: asyncio.Task[None] | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def n_connections(self) -> int:
        """HTTP connections that are open now."""
        return len(self._server.server_state.connections)

    @property
    def connections(self) -> list[Connection]:
        """The HTTP connections that are open now."""
        return [one for one in self._server.server_state.connections if isinstance(one, Connection)]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the listening socket."""
        return self._socket.getsockname()[:2]

    def unread_by_connection(self) -> dict[Hashable, int]:
        """Bytes that the client of each open connection has not read yet, as `Connection.n_unread` counts them."""
        return {connection: connection.n_unread for connection in self.connections}

    async def start(self) -> str:
        """Start to serve; returns the address, such as "http://127.0.0.1:8000", or the path of a unix socket.

        Raises: RuntimeError when uvicorn ends before it is ready; uvicorn's own error when it fails. No deadline of its own:
        the supervisor's knows how long this process was stopped.
        """
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket] if self._tls is None else []))
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError("uvicorn exited before it was ready")
            await asyncio.sleep(_START_POLL_S)
        self._check_connections()
        if self._tls is not None:
            self._tls.open()
        return address_of(self._socket.fileno(), has_tls=self._tls is not None)

    async def adopt(self, client: socket.socket, make: Callable[..., Connection]) -> None:
        """Serve a connection that another process has accepted. `make` is called as `Connection` is."""
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._connection(make), client)

    def _connection(self, make: Callable[..., Connection]) -> Connection:
        server, loop = self._server, asyncio.get_running_loop()
        return make(
            self._limits, self._custodian, config=server.config, server_state=server.server_state, app_state={}, _loop=loop
        )

    def _after_handshake(self, place: ConnectionPlace | None) -> Connection:
        connection = self._connection(self._protocol)
        connection.place = place
        return connection

    async def hand_over(self, limit_s: float) -> None:
        """Accept no more connections; new ones wait for the next incarnation, which also gets those that are open. Waits at
        most `limit_s` for requests that are being read and for answers that it could not go on with."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + limit_s
        for listener in self._server.servers:
            listener.close()
        while [one for one in self.connections if not one.hand_over()] and loop.time() < end_s:
            await asyncio.sleep(_SETTLE_POLL_S)

    async def stop(self) -> None:
        """Accept no more connections, and wait up to `shutdown_s` for the finished answers that are being sent. The connections
        of unfinished ones end at once."""
        self._server.end()
        for connection in self.connections:
            connection.hangup.on_stop()
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._tls is not None:
            self._tls.close()
        if self._task is not None:
            _, pending = await asyncio.wait({self._task}, timeout=self._shutdown_s + 2.0)
            for task in pending:
                task.cancel()
        self._socket.close()

    def _update_limit(self) -> None:
        """The limit of open files may be lowered while the server runs."""
        self._most_connections = min(self._wanted_connections, max(most_open_files() - FILES_BESIDE_CONNECTIONS, 1))

    def _check_connections(self) -> None:
        loop = asyncio.get_running_loop()
        self._update_limit()
        if self._tls is not None:
            self._tls.refresh()
        for connection in self.connections:
            connection.cut_if_slow(loop.time())
        if self._path and not os.path.exists(self._path):
            self._again = loop.create_task(self._listen_again())
        self._check_timer = loop.call_later(_CHECK_S, self._check_connections)

    async def _listen_again(self) -> None:
        """Somebody has removed the file of the unix socket: make it again, so that new connections find this server."""
        with contextlib.suppress(OSError):  # its directory has gone too, or no descriptor is left: the next check tries again
            listener = socket.socket(fileno=listen_for_gateways(Path(self._path)))
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: self._connection(self._protocol), sock=listener, backlog=_BACKLOG)
            self._server.servers.append(server)
