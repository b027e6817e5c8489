"""The HTTP API of one gateway as an ASGI application: all endpoints, and what they have in common.

The handlers of POST requests to paths without a pattern are called directly, because Starlette's layers (two for errors, the
router's patterns, wrappers around every send) take a fifth of a short request's time. Every other request goes through
Starlette.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from actors.gateway.access.audited import audit_of
from actors.gateway.access.http_keys import key_in, no_key_in
from actors.gateway.access.key_ring import KeyRing
from actors.gateway.admission.body_budget import BodyBudget
from actors.gateway.admission.caller import caller_of_call, is_forwarded
from actors.gateway.answer_cache.cache_use import cache_use_of
from actors.gateway.bodies.request_name import Origin
from actors.gateway.connections.caller_connections import settle
from actors.gateway.custody.hold import was_accepted
from actors.gateway.http.admin_calls import for_admins
from actors.gateway.http.answers.inside_time import note_read
from actors.gateway.http.endpoint import Call, Endpoint, Services
from actors.gateway.http.endpoints import (
    anthropic,
    documentation,
    embeddings,
    generate,
    live,
    ollama,
    ollama_models,
    openai,
    rebuilt,
    responses,
    server_facts,
    streams,
    tokenize,
)
from actors.gateway.http.endpoints.operator import cache, server, tenants
from actors.gateway.http.errors import (
    error_body_at,
    error_body_for,
    error_response,
    on_exception,
    on_http_exception,
    without_slash,
)
from actors.gateway.http.request_identity import Identity, correlation_id_of, identity_of
from actors.gateway.requests.refusal_log import NO_CALLER
from actors.gateway.requests.refusals import Refusal, stopped
from actors.gateway.settings import GatewaySettings
from messages.ids import mint_request_id
from messages.wire.message import NO_TRACE
from messages.wire.trace_context import trace_caller_of

AnswerCall = Callable[[HttpRequest], Awaitable[ASGIApp]]
OnError = Callable[[HttpRequest, Exception], Awaitable[ASGIApp]]

_DESCRIBED = (
    *openai.ENDPOINTS,
    *generate.ENDPOINTS,
    *streams.ENDPOINTS,
    *server_facts.ENDPOINTS,
    *tokenize.ENDPOINTS,
    *responses.ENDPOINTS,
    *anthropic.ENDPOINTS,
    *ollama.ENDPOINTS,
    *ollama_models.ENDPOINTS,
    *embeddings.ENDPOINTS,
    *cache.ENDPOINTS,
    *tenants.ENDPOINTS,
    *server.ENDPOINTS,
    *live.ENDPOINTS,
)
_NOBODY = Identity()
ENDPOINTS = (*_DESCRIBED, *documentation.documentation(_DESCRIBED))


def build_app(services: Services, *, for_gateways: bool = False) -> ASGIApp:
    """The ASGI application. `for_gateways`: with the endpoints that only other gateways call."""
    audit = audit_of(services.settings)
    known = (*ENDPOINTS, *rebuilt.ENDPOINTS) if for_gateways else ENDPOINTS
    endpoints = [for_admins(one, services, audit) for one in known]
    routes = [
        Route(path, _by_method(calls) if len(calls) > 1 else next(iter(calls.values())), methods=[*calls])
        for path, calls in _calls_by_path(endpoints, services).items()
    ]
    posts = {one.path: _framed(one, services) for one in endpoints if one.method == "POST" and "{" not in one.path}
    refused = partial(on_http_exception, services.manager.refusals, partial(_origin_of, services.settings))
    handlers: Any = {HTTPException: refused, Exception: on_exception}
    return DirectRoutes(posts, Starlette(routes=routes, exception_handlers=handlers), on_exception)


def _calls_by_path(endpoints: Iterable[Endpoint], services: Services) -> dict[str, dict[str, AnswerCall]]:
    """All endpoints of each path by their methods: one route for each path, so that a wrong method is told all right ones."""
    calls: dict[str, dict[str, AnswerCall]] = {}
    for one in endpoints:
        calls.setdefault(one.path, {})[one.method] = _framed(one, services)
    return calls


def _by_method(calls: Mapping[str, AnswerCall]) -> AnswerCall:
    """The endpoint of a path that has several. HEAD is answered as GET."""

    async def answer(http: HttpRequest) -> ASGIApp:
        return await calls["GET" if http.method == "HEAD" else http.method](http)

    return answer


def _framed(endpoint: Endpoint, services: Services) -> AnswerCall:
    """An endpoint with what all have in common: request and trace id, the body within its budget, refusals as responses."""
    error_form, note = error_body_at(endpoint.path), services.manager.refusals.note

    async def answer(http: HttpRequest) -> ASGIApp:
        headers = dict(http.scope["headers"])  # names in lower case, as ASGI has them
        origin = _origin_of(services.settings, http, headers)
        identity, caller = _NOBODY, NO_CALLER
        try:
            if services.keys is not None and not endpoint.is_open and not is_forwarded(http.scope):
                origin = await _with_key(services.keys, origin, headers, endpoint)
                caller = origin.caller
            if not endpoint.is_open:
                settle(http.scope, origin.caller)
            identity = identity_of(headers)
            endpoint.check_query(http.scope["query_string"])
            if endpoint.method not in ("POST", "PUT"):
                call = Call(identity, origin, bytearray(), _parameters(http), http.scope)
                return _correlated(await endpoint.handler(services, call), origin)
            if endpoint.needs_open and not _may_be_known(services, identity.key) and not was_accepted(http.scope):
                services.admission.check_open()
            body = CountedBody(services.admission.bodies, origin.caller)
            try:
                await body.read(http.receive, _text(headers, b"content-length"))
                note_read(http.scope)
                call = Call(identity, origin, body.content, http.path_params, http.scope)
                return _correlated(await endpoint.handler(services, call), origin)
            finally:
                body.release()
        except Refusal as refusal:
            named = identity.key or ("" if origin.correlation_id else mint_request_id())
            traced = note(refusal, endpoint.path, named, origin.correlation_id, caller, origin.call_trace)
            form = error_body_for(http) if endpoint.path.startswith("/v1/models") else error_form
            return error_response(refusal, {"X-Request-Id": origin.correlation_id or named, **traced}, form)
        except ClientDisconnect:
            return Response(status_code=499)
        except asyncio.CancelledError:  # by uvicorn: the gateway ends before there is an answer
            return error_response(stopped(), body_of=error_form)

    return answer


def _origin_of(settings: GatewaySettings, http: HttpRequest, headers: Mapping[bytes, bytes] | None = None) -> Origin:
    """What the headers of a call say of it, beside its identity and its API key."""
    headers = dict(http.scope["headers"]) if headers is None else headers
    caller = caller_of_call(http.scope, headers, settings.caller_header)
    cache_use = cache_use_of(_text(headers, b"cache-control"))
    allows_fallback, trace_id, trace = not _is_set(headers, b"x-no-fallback"), NO_TRACE, None
    if b"traceparent" in headers:
        client = trace_caller_of(_text(headers, b"traceparent"), _text(headers, b"tracestate"))
        trace_id, trace = (NO_TRACE, None) if client is None else (client.trace_id, client.context)
    trace = None if settings.traces is None else trace  # without traces the id alone goes with the request, for log lines
    began_s = 0.0 if settings.traces is None else monotonic()
    name = correlation_id_of(headers)
    return Origin(trace_id, caller, name, cache_use, allows_fallback=allows_fallback, trace=trace, began_s=began_s)


async def _with_key(keys: KeyRing, origin: Origin, headers: Mapping[bytes, bytes], endpoint: Endpoint) -> Origin:
    """The origin of a call by the API key in its headers. Raises: Refusal."""
    key = key_in(headers)
    holder = keys.known(key) or await keys.holder_of(key, no_key_in(headers))
    if not (endpoint.shows_metrics or endpoint.needs_admin):  # the latter refuses it, with a line in the audit log
        holder.check_may_ask()
    return msgspec.structs.replace(origin, caller=holder.caller, is_admin=holder.is_admin, sees_all=holder.sees_all)


def _correlated(answer: ASGIApp, origin: Origin) -> ASGIApp:
    """An answer with its client's X-Request-Id. Those that are still being computed have it by themselves."""
    if origin.correlation_id and isinstance(answer, Response):
        answer.headers["X-Request-Id"] = origin.correlation_id
    return answer


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def _is_set(headers: Mapping[bytes, bytes], name: bytes) -> bool:
    return _text(headers, name).strip().lower() not in ("", "0", "false")


def _may_be_known(services: Services, request_id: str) -> bool:
    """True if a request with this id may be known, here or at another gateway, though new ones are refused."""
    owners = services.owners
    return bool(request_id) and (
        services.admission.knows(request_id) or owners.have_changed or bool(owners.socket_of(request_id))
    )


def _parameters(http: HttpRequest) -> dict[str, str]:
    return {**http.query_params, **http.path_params}


class DirectRoutes:
    """An ASGI application. `posts`: endpoints of POST requests by path; `others` handles every other request. When an endpoint
    raises, `on_error` makes the response.
    """

    def __init__(self, posts: Mapping[str, AnswerCall], others: ASGIApp, on_error: OnError) -> None:
        self._posts, self._others, self._on_error = posts, others, on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._posts.get(scope["path"]) if is_post else None
        if endpoint is None:
            is_near = is_post and scope["path"].removesuffix("/") in self._posts
            await (without_slash(scope["path"]) if is_near else self._others)(scope, receive, send)
            return
        http = HttpRequest(scope, receive)
        try:
            answer = await endpoint(http)
        except Exception as error:
            answer = await self._on_error(http, error)
        await answer(scope, receive, send)


class CountedBody:
    """The body of one request. It counts against the budget, and the share of its caller, until `release`."""

    def __init__(self, budget: BodyBudget, caller: bytes) -> None:
        self.content = bytearray()
        self._budget, self._caller, self._counted = budget, caller, 0

    async def read(self, receive: Receive, declared: str) -> None:
        """Read all of it into `content`. `declared`: Content-Length, or "".

        Raises: Refusal as soon as the body is too large; starlette's ClientDisconnect.
        """
        budget, content = self._budget, self.content
        if declared.isdecimal() and int(declared) > budget.max_body_bytes:
            raise budget.too_large(declared)
        more_comes = True
        while more_comes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part: bytes = message.get("body", b"")
            if len(content) + len(part) > budget.max_body_bytes:
                raise budget.too_large("more")
            self._counted = budget.count(len(content) + len(part), self._counted, self._caller)
            content += part
            more_comes = message.get("more_body", False)

    def release(self) -> None:
        """The budget has room again for what was read."""
        self._budget.release(self._counted, self._caller)
