"""Notices when the client of an HTTP connection disconnects, with one callback instead of a waiting task for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from starlette.types import Receive, Scope

EXTENSION = "tardigrade.hangup"  # key of a connection's `Hangup` in the ASGI scope's extensions


class Watch(Protocol):
    """A callback that is called when a client disconnects, unless it is cancelled."""

    def cancel(self) -> object:
        """Cancel the callback. Does nothing if it has been called or cancelled already."""
        ...


def nothing() -> None:
    """What an answer does that needs not know of the end of its gateway."""


class Hangup:
    """The callbacks for the disconnect of one connection."""

    def __init__(self) -> None:
        self.is_final = True  # True: the client itself has left; False: a gateway has, and its client may still be there
        self.is_disconnected = False
        self.abort: Callable[[], None] = lambda: None  # closes the connection at once, also while nothing is read from it
        self.on_stop: Callable[[], None] = nothing  # of the answer under way: this gateway ends, so no more tokens come
        self._callbacks: list[Callable[[], None]] = []

    def notify(self) -> None:
        """The connection is lost: run every callback."""
        self.is_disconnected = True
        for callback in tuple(self._callbacks):
            callback()

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Run `callback` when the connection is lost, or now if it is lost already."""
        if self.is_disconnected:
            callback()
        self._callbacks.append(callback)
        return _CallbackWatch(self._callbacks, callback)


class _CallbackWatch(Watch):
    def __init__(self, callbacks: list[Callable[[], None]], callback: Callable[[], None]) -> None:
        self._callbacks, self._callback = callbacks, callback

    def cancel(self) -> None:
        if self._callback in self._callbacks:
            self._callbacks.remove(self._callback)


def watch_hangup(scope: Scope, receive: Receive, callback: Callable[[], None]) -> Watch:
    """Run `callback` when the client of an ASGI request disconnects.

    Under a server that puts no `Hangup` into the scope (as in tests), a task waits for ASGI's "http.disconnect".
    """
    hangup = scope.get("extensions", {}).get(EXTENSION)
    if hangup is not None:
        return hangup.watch(callback)
    task = asyncio.ensure_future(_wait_disconnect(receive))
    task.add_done_callback(lambda _: callback())
    return task


def abort(scope: Scope) -> None:
    """Close the connection of an ASGI request whose answer cannot go on. Its watchers are told; its server misses nothing."""
    hangup = scope.get("extensions", {}).get(EXTENSION)
    if hangup is not None:
        hangup.abort()


def on_stop(scope: Scope, callback: Callable[[], None]) -> None:
    """Run `callback` when this gateway ends while the connection of an ASGI request is open. It replaces the last one."""
    hangup = scope.get("extensions", {}).get(EXTENSION)
    if hangup is not None:
        hangup.on_stop = callback


def may_return(scope: Scope) -> bool:
    """True if the connection of an ASGI request is lost and its client may still be there."""
    hangup = scope.get("extensions", {}).get(EXTENSION)
    return hangup is not None and hangup.is_disconnected and not hangup.is_final


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
