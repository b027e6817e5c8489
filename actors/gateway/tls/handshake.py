"""Accepts HTTPS connections. The HTTP protocol sees a connection when its handshake is over.

A listener of asyncio with TLS keeps one context for ever, and counts no handshakes. Here each connection gets the context of
the moment, has the time of a head for its handshake, and is one of a bounded number. A handshake takes about half a millisecond
of this process, so one begins with each turn of the loop, when its first message is there: thousands that send theirs at the
same moment do not hold up the streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from actors.gateway.connections.caller_connections import CallerConnections, ConnectionPlace
from actors.gateway.tls.certificates import Certificates
from actors.gateway.tls.first_message import is_whole_in_one_record
from messages.descriptors.reserve import process_reserve

_MOST_HANDSHAKES = 1024  # under way; further connections wait in the kernel's queue, where other gateways may take them
_MOST_UNUSUAL = 8  # of them, whose first message has several records, so that nobody sees when it is complete
_CLOSE_S = 2.0  # a client that does not confirm the end of a connection is not waited for longer
_LEAST_S = 0.1  # for a handshake whose first message came at the last moment
_AGAIN_S = 0.1  # between two tries to accept while no descriptor is left


class TlsDoor:
    """Accepts from one listening socket between `open` and `close`. `make` makes the protocol of a connection from its place.
    `callers` counts the connections of each caller from their handshake on; None: nobody does. `limit_s`: the time for a
    handshake. `on_cut` is called with "tls" for each handshake that fails."""

    def __init__(
        self,
        certificates: Certificates,
        listener: socket.socket,
        make: Callable[[ConnectionPlace | None], asyncio.Protocol],
        callers: CallerConnections | None,
        limit_s: float,
        on_cut: Callable[[str], None],
    ) -> None:
        self._certificates, self._listener, self._make = certificates, listener, make
        self._callers, self._limit_s, self._on_cut = callers, limit_s, on_cut
        self._room, self._turn = asyncio.Semaphore(_MOST_HANDSHAKES), asyncio.Lock()
        self._of_unusual = asyncio.Semaphore(_MOST_UNUSUAL)
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Begin to accept."""
        self._spawn(self._accept_all())

    def refresh(self) -> None:
        """Read the certificates again if their files have changed; to be called about once a second."""
        self._certificates.refresh()

    def close(self) -> None:
        """Accept no more, and end all handshakes."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if process_reserve().is_short:  # what is left is for links to other actors
                await asyncio.sleep(_AGAIN_S)
                continue
            await self._room.acquire()
            try:
                client, address = await loop.sock_accept(self._listener)
            except OSError:
                self._room.release()
                await asyncio.sleep(_AGAIN_S)
                continue
            place = None if self._callers is None else self._callers.enter(address[0])
            if self._callers is not None and place is None:
                client.close()
                self._room.release()
                continue
            self._spawn(self._shake_hands(client, place))

    async def _shake_hands(self, client: socket.socket, place: ConnectionPlace | None) -> None:
        """`place`: among the connections of its caller; the connection has it after the handshake."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._limit_s
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if await is_whole_in_one_record(client, self._limit_s):
                async with self._turn:
                    await asyncio.sleep(0)
                await self._connect(client, place, end_s - loop.time())
            else:
                async with asyncio.timeout_at(end_s), self._of_unusual:
                    await self._connect(client, place, end_s - loop.time())
        except OSError:  # no TLS, no common version, a wrong certificate, too slow, or the client has left
            self._on_cut("tls")
            _leave(place)
            client.close()
        except BaseException:
            _leave(place)
            with contextlib.suppress(OSError):
                client.close()
            raise
        finally:
            self._room.release()

    async def _connect(self, client: socket.socket, place: ConnectionPlace | None, limit_s: float) -> None:
        """Shake hands. Raises: OSError."""
        context = self._certificates.context
        if context is None:
            raise ConnectionAbortedError("there is no certificate")
        limits = {"ssl_handshake_timeout": max(limit_s, _LEAST_S), "ssl_shutdown_timeout": _CLOSE_S}
        await asyncio.get_running_loop().connect_accepted_socket(partial(self._make, place), client, ssl=context, **limits)


def _leave(place: ConnectionPlace | None) -> None:
    if place is not None:
        place.leave()
