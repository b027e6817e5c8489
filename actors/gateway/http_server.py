"""uvicorn inside an actor: on an inherited socket, on the actor's loop, without its own signal handling."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from actors.gateway.settings import GatewaySettings

_BACKLOG = 2048
_START_WAIT_S = 10.0


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Life and death are the supervisor's business."""
        yield


class HttpServer:
    """Serves one ASGI application on a listening socket given by its descriptor."""

    def __init__(self, app: ASGIApp, listen_fd: int, settings: GatewaySettings) -> None:
        self._socket = socket.socket(fileno=listen_fd)
        self._socket.setblocking(False)
        self._shutdown_s = settings.shutdown_s
        config = uvicorn.Config(
            app,
            http="httptools",
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
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        """Take no more connections, let open answers end for a bounded time."""
        self._server.should_exit = True
        if self._task is not None:
            _, pending = await asyncio.wait({self._task}, timeout=self._shutdown_s + 2.0)
            for task in pending:
                task.cancel()
        self._socket.close()
