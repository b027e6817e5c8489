"""The answer that streams snapshots to one viewer, until it leaves, its key counts no longer, or the gateway ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from actors.gateway.http.answers.chunk_sender import EXTENSION, OwnConnection, chunk_sender
from actors.gateway.http.answers.hangup import watch_hangup
from actors.gateway.http.errors import error_response
from actors.gateway.page.feed import LiveFeed, Viewer
from actors.gateway.page.snapshot import Audience
from actors.gateway.requests.refusals import Refusal

PING_S = 0.4  # after which a viewer is told that this gateway lives; the page waits for 1 s (feed.js)
AGAIN_MS = 250  # after which a browser's EventSource asks again
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class LiveStream:
    """An ASGI answer. `may_see`: False as soon as the key with which the viewer came counts no longer."""

    def __init__(self, feed: LiveFeed, audience: Audience, may_see: Callable[[], bool]) -> None:
        self._feed, self._audience, self._may_see = feed, audience, may_see

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own: OwnConnection | None = scope.get("extensions", {}).get(EXTENSION)
        if own is not None:
            own.note_endless()
        try:
            viewer = self._feed.join(self._audience)
        except Refusal as refusal:
            await error_response(refusal)(scope, receive, send)
            return
        watch = watch_hangup(scope, receive, viewer.leave)
        try:
            sender = chunk_sender(scope, send)
            await sender.begin(_HEADERS)
            await sender.send([b"retry: %d\n\n" % AGAIN_MS])
            while scope["method"] != "HEAD" and self._may_see() and (event := await _next_event(viewer)) is not None:
                await sender.send([event])
            await sender.end(b"")
        except OSError:
            pass  # the viewer has left
        finally:
            watch.cancel()
            viewer.leave()


async def _next_event(viewer: Viewer) -> bytes | None:
    """The next snapshot as an event; a comment where none comes for PING_S, as while the supervisor does not answer. None: the
    viewer has left."""
    try:
        async with asyncio.timeout(PING_S):
            snapshot = await viewer.next()
    except TimeoutError:
        return b": alive\n\n"
    return None if snapshot is None else b"data: %b\n\n" % snapshot
