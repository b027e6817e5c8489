"""uvicorn inside an actor: on an inherited socket, on the actor's loop, without its own signal handling."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from actors.gateway.http.connection import Connection, ConnectionLimits
from actors.gateway.settings import GatewaySettings

_BACKLOG = 2048
_START_WAIT_S = 10.0
_LOOK_S = 1.0  # how often slow clients are looked for
_OTHER_FILES = 256  # descriptors that are no HTTP connections


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Life and death are the supervisor's business."""
        yield


class HttpServer:
    """Serves one ASGI application on a listening socket given by its descriptor."""

    def __init__(self, app: ASGIApp, listen_fd: int, settings: GatewaySettings, on_cut: Callable[[str], None]) -> None:
        """`on_cut` hears of every client that is turned away: "slow", "unread" or "many"."""
        self._socket = socket.socket(fileno=listen_fd)
        self._socket.setblocking(False)
        self._shutdown_s = settings.shutdown_s
        most = min(settings.max_connections, max(_open_files() - _OTHER_FILES, 1))
        limits = ConnectionLimits(most, settings.head_s, settings.body_s, settings.unread_s, on_cut)
        connection: Any = partial(Connection, limits)
        config = uvicorn.Config(
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
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None
        self._look_timer: asyncio.TimerHandle | None = None

    @property
    def n_connections(self) -> int:
        """Open now."""
        return len(self._server.server_state.connections)

    def unread_by_connection(self) -> dict[Hashable, int]:
        """What the client of each connection has not taken yet, as `Connection.n_unread` counts it."""
        return {c: c.n_unread for c in self._server.server_state.connections if isinstance(c, Connection)}

    async def start(self) -> str:
        """Serve from now on; returns the address as text.

        Raises: TimeoutError, or what uvicorn met, when it does not come up.
        """
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        async with asyncio.timeout(_START_WAIT_S):
            while not self._server.started:
                if self._task.done():
                    self._task.result()
                    raise TimeoutError("uvicorn ended before it served")
                await asyncio.sleep(0.005)
        self._look()
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        """Take no more connections, let open answers end for a bounded time."""
        self._server.should_exit = True
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._task is not None:
            _, pending = await asyncio.wait({self._task}, timeout=self._shutdown_s + 2.0)
            for task in pending:
                task.cancel()
        self._socket.close()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in tuple(self._server.server_state.connections):
            if isinstance(connection, Connection):
                connection.cut_if_slow(loop.time())
        self._look_timer = loop.call_later(_LOOK_S, self._look)


def _open_files() -> int:
    """How many descriptors this process may hold, after it has asked for as many as it can get."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return now if now != resource.RLIM_INFINITY else 1 << 30
