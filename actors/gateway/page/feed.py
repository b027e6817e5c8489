"""One collection a second for all viewers of a gateway, and none while nobody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from actors.gateway.page.requests import RowsWanted
from actors.gateway.page.snapshot import Audience, Collected, snapshot_for
from actors.gateway.requests.refusals import Refusal

EVERY_S = 1.0
MOST_VIEWERS = 256
_AGAIN_S = 5.0
_NOBODY = RowsWanted(everyone=False, tenants=[])

Collect = Callable[[RowsWanted], Awaitable[Collected]]


class Viewer:
    """One viewer. It must `leave` when it looks no longer."""

    def __init__(self, feed: LiveFeed, audience: Audience) -> None:
        self.audience, self._feed = audience, feed
        self._seen: Collected | None = None
        self._news = asyncio.Event()

    def wake(self) -> None:
        """There is a new collection, or this viewer has left."""
        self._news.set()

    async def next(self) -> bytes | None:
        """The newest snapshot as JSON, as soon as it is one that was not seen; None when this viewer has left, or had to."""
        while self in self._feed:
            found = self._feed.found_for(self.audience)
            if found is not None and found is not self._seen:
                self._seen = found
                return self._feed.encoded(self.audience, found)
            self._news.clear()
            await self._news.wait()
        return None

    def leave(self) -> None:
        """Look no longer."""
        self._feed.leave(self)


class LiveFeed:
    """`collect` is called once in `every_s` seconds while there are viewers, for all of them together."""

    def __init__(self, collect: Collect, every_s: float = EVERY_S) -> None:
        self._collect, self._every_s = collect, every_s
        self._viewers: dict[Viewer, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._found: Collected | None = None
        self._wanted = _NOBODY  # when it was collected
        self._encoded: dict[Audience, bytes] = {}
        self._is_closed = False

    def __contains__(self, viewer: Viewer) -> bool:
        return viewer in self._viewers

    @property
    def n_viewers(self) -> int:
        """Viewers now."""
        return len(self._viewers)

    @property
    def is_running(self) -> bool:
        """True while collections are made."""
        return self._task is not None

    def join(self, audience: Audience) -> Viewer:
        """A new viewer. Raises: Refusal where there are too many, or the gateway ends."""
        if self._is_closed or len(self._viewers) >= MOST_VIEWERS:
            why = (
                "this gateway ends"
                if self._is_closed
                else f"viewers: {MOST_VIEWERS} look at this gateway already, which is the limit"
            )
            raise Refusal("unavailable", why, retry_after_s=_AGAIN_S)
        viewer = Viewer(self, audience)
        self._viewers[viewer] = None
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """The last one who leaves ends the collections."""
        self._viewers.pop(viewer, None)
        viewer.wake()
        if not self._viewers and self._task is not None:
            self._task.cancel()
            self._task = self._found = None
            self._encoded.clear()

    def close(self) -> None:
        """The gateway ends: all viewers leave."""
        self._is_closed = True
        self._dismiss()

    def found_for(self, audience: Audience) -> Collected | None:
        """The newest collection, if it has what this audience sees."""
        wanted = self._wanted
        has_it = wanted.everyone if audience.tenant is None else audience.tenant in wanted.tenants
        return self._found if has_it else None

    def encoded(self, audience: Audience, found: Collected) -> bytes:
        """The newest collection for an audience, made once for all viewers that are alike."""
        if audience not in self._encoded:
            self._encoded[audience] = msgspec.json.encode(snapshot_for(audience, found))
        return self._encoded[audience]

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s, wanted = loop.time(), self._wanted_now()
            self._found, self._wanted = await self._collect(wanted), wanted
            self._encoded.clear()
            for viewer in self._viewers:
                viewer.wake()
            await asyncio.sleep(max(0.0, began_s + self._every_s - loop.time()))

    def _wanted_now(self) -> RowsWanted:
        tenants = {viewer.audience.tenant for viewer in self._viewers}
        return RowsWanted(None in tenants, sorted(tenant for tenant in tenants if tenant is not None))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A collection has failed: viewers ask again, and the others of this gateway do not notice."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        structlog.get_logger().error("the page's figures could not be collected", exc_info=error)
        self._dismiss()

    def _dismiss(self) -> None:
        for viewer in tuple(self._viewers):
            self.leave(viewer)
