"""Whether the client of an HTTP connection has hung up, and who wants to know: a call instead of a waiting task per request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Receive, Scope

EXTENSION = "tardigrade.hangup"


class Watch(Protocol):
    """What ends a watch."""

    def cancel(self) -> Any:
        """Not any more."""
        ...


class Hangup:
    """One connection's. `watch` returns what ends the watch."""

    def __init__(self) -> None:
        self._is_over = False
        self._watchers: list[Callable[[], None]] = []

    def tell(self) -> None:
        """The connection is lost."""
        self._is_over = True
        for watcher in tuple(self._watchers):
            watcher()

    def watch(self, watcher: Callable[[], None]) -> Watch:
        """Call `watcher` when the connection is lost, or at once when it is."""
        if self._is_over:
            watcher()
        self._watchers.append(watcher)
        return _Watching(self._watchers, watcher)


class _Watching:
    def __init__(self, watchers: list[Callable[[], None]], watcher: Callable[[], None]) -> None:
        self._watchers, self._watcher = watchers, watcher

    def cancel(self) -> None:
        if self._watcher in self._watchers:
            self._watchers.remove(self._watcher)


def watch_hangup(scope: Scope, receive: Receive, watcher: Callable[[], None]) -> Watch:
    """The same under any server: one that offers no `Hangup` is asked as ASGI has it, by a task."""
    hangup = scope.get("extensions", {}).get(EXTENSION)
    if hangup is not None:
        return hangup.watch(watcher)
    task = asyncio.ensure_future(_wait_disconnect(receive))
    task.add_done_callback(lambda _: watcher())
    return task


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
