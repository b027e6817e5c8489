"""The HTTP API of one gateway: the endpoints of every group, and the frame around each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from actors.gateway.http.endpoint import Call, Endpoint, Services, request_id_of
from actors.gateway.http.endpoints import generate, openai, server_facts, tokenize
from actors.gateway.http.errors import error_response, on_exception, on_http_exception
from actors.gateway.http.routes import DirectRoutes
from actors.gateway.requests.refusals import Refusal
from messages.ids import mint_request_id

ENDPOINTS = (*openai.ENDPOINTS, *generate.ENDPOINTS, *server_facts.ENDPOINTS, *tokenize.ENDPOINTS)


def build_app(services: Services) -> ASGIApp:
    """The ASGI application."""
    routes = [Route(one.path, _framed(one, services), methods=[one.method]) for one in ENDPOINTS]
    posts = {one.path: _framed(one, services) for one in ENDPOINTS if one.method == "POST"}
    handlers: Any = {HTTPException: on_http_exception, Exception: on_exception}
    return DirectRoutes(posts, Starlette(routes=routes, exception_handlers=handlers), on_exception)


def _framed(endpoint: Endpoint, services: Services) -> Callable[[HttpRequest], Awaitable[Any]]:
    """An endpoint with what all have in common: a request id, the body within its budget, refusals as OpenAI's errors."""

    async def call(http: HttpRequest) -> ASGIApp:
        request_id = request_id_of(http)
        try:
            if endpoint.method == "GET":
                return await endpoint.handler(services, Call(http, request_id, bytearray()))
            if endpoint.needs_open:
                services.admission.check_open()
            async with services.admission.bodies.read(http) as body:
                return await endpoint.handler(services, Call(http, request_id, body))
        except Refusal as refusal:
            services.desk.metrics.refused.labels(refusal.code).inc()
            return error_response(refusal, {"X-Request-Id": request_id or mint_request_id()})
        except ClientDisconnect:
            return Response(status_code=499)

    return call
