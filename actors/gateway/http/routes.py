"""Calls the handlers of the busiest routes directly; every other path goes through Starlette.

Starlette's layers (two for errors, the router's patterns, wrappers around every send) take a fifth of a short request's time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[HttpRequest], Awaitable[ASGIApp]]
OnError = Callable[[HttpRequest, Exception], Awaitable[ASGIApp]]


class DirectRoutes:
    """An ASGI application. `posts`: endpoints of POST requests by path; `others` handles every other request. When an endpoint
    raises, `on_error` makes the response.
    """

    def __init__(self, posts: Mapping[str, Endpoint], others: ASGIApp, on_error: OnError) -> None:
        self._posts, self._others, self._on_error = posts, others, on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._posts.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if endpoint is None:
            await self._others(scope, receive, send)
            return
        http = HttpRequest(scope, receive)
        try:
            answer = await endpoint(http)
        except Exception as error:
            answer = await self._on_error(http, error)
        await answer(scope, receive, send)
