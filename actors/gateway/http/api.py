"""The HTTP API of one gateway: the endpoints of every group, and the frame around each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from actors.gateway.http.body import counted_body
from actors.gateway.http.endpoint import Call, Endpoint, Services, request_id_of, trace_id_of
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
        headers = dict(http.scope["headers"])  # names in lower case, as ASGI has them
        request_id, trace_id = request_id_of(_text(headers, b"x-request-id")), trace_id_of(_text(headers, b"traceparent"))
        try:
            if endpoint.method == "GET":
                return await endpoint.handler(services, Call(request_id, trace_id, bytearray(), http.path_params))
            if endpoint.needs_open:
                services.admission.check_open()
            async with counted_body(http, _text(headers, b"content-length"), services.admission.bodies) as body:
                return await endpoint.handler(services, Call(request_id, trace_id, body, http.path_params))
        except Refusal as refusal:
            services.desk.metrics.refused.labels(refusal.code).inc()
            return error_response(refusal, {"X-Request-Id": request_id or mint_request_id()})
        except ClientDisconnect:
            return Response(status_code=499)

    return call


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")
