"""The HTTP routes: parse, call the desk, hand over to an answer. No business rule lives here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from actors.gateway.admission.admission import Admission
from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.dispatch.request_desk import RequestDesk
from actors.gateway.http import schema as api_schema
from actors.gateway.http.errors import error_response, on_exception, on_http_exception
from actors.gateway.http.openai_chunks import ChunkWriter, whole_body
from actors.gateway.http.plain_bodies import batch_body, generate_body
from actors.gateway.http.routes import DirectRoutes
from actors.gateway.http.sse import EventStream, WholeAnswer
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.requests.request import Request
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.tokenizer import TextModel
from messages.ids import mint_request_id

_MAX_ID_CHARACTERS = 256


class Status(Protocol):
    """What the routes ask of the actor."""

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Can requests be served, and the parts of the answer."""
        ...

    async def summary(self) -> dict[str, Any]:
        """The JSON of /v1/metrics."""
        ...

    async def exposition(self) -> bytes:
        """The Prometheus text of the whole server."""
        ...

    def wall_s(self) -> float:
        """Unix time."""
        ...


class HttpApi:
    """All routes of one gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        model: TextModel,
        admission: Admission,
        desk: RequestDesk,
        status: Status,
    ) -> None:
        self._settings, self._model = settings, model
        self._admission, self._desk, self._status = admission, desk, status
        self._started_s = int(status.wall_s())

    def app(self) -> ASGIApp:
        """The ASGI application."""
        posts = {
            "/v1/chat/completions": self._post(self.chat),
            "/v1/completions": self._post(self.completions),
            "/v1/generate": self._post(self.generate, may_be_known=True),
            "/v1/batch": self._post(self.batch),
        }
        routes = [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),  # knows what else is not allowed
            Route("/v1/models", self._route(self.models)),
            Route("/v1/models/{name:path}", self._route(self.model)),
            Route("/v1/health", self._route(self.health)),
            Route("/health", self._route(self.health)),
            Route("/v1/metrics", self._route(self.summary)),
            Route("/metrics", self._route(self.exposition)),
        ]
        handlers: Any = {HTTPException: on_http_exception, Exception: on_exception}
        return DirectRoutes(posts, Starlette(routes=routes, exception_handlers=handlers), on_exception)

    def _route(self, handler: Callable[[HttpRequest, str], Awaitable[ASGIApp]]) -> Callable[[HttpRequest], Awaitable[Any]]:
        """Every route's frame: a request id, refusals as OpenAI's errors."""

        async def endpoint(http: HttpRequest) -> ASGIApp:
            given = http.headers.get("x-request-id", "")
            request_id = given if 0 < len(given) <= _MAX_ID_CHARACTERS and given.isprintable() else ""
            try:
                return await handler(http, request_id)
            except Refusal as refusal:
                self._desk.metrics.refused.labels(refusal.code).inc()
                return error_response(refusal, {"X-Request-Id": request_id or mint_request_id()})
            except ClientDisconnect:
                return Response(status_code=499)

        return endpoint

    def _post(
        self, handler: Callable[[bytearray, str], Awaitable[ASGIApp]], *, may_be_known: bool = False
    ) -> Callable[[HttpRequest], Awaitable[Any]]:
        """A request with a body. The body is read only if requests are accepted now, or if its answer may already be known."""

        async def with_body(http: HttpRequest, request_id: str) -> ASGIApp:
            if not may_be_known:
                self._admission.check_open()
            async with self._admission.bodies.read(http) as raw:
                return await handler(raw, request_id)

        return self._route(with_body)

    # -- generation -----------------------------------------------------------------------------------------------

    async def chat(self, raw: bytearray, request_id: str) -> ASGIApp:
        """POST /v1/chat/completions."""
        body = api_schema.read_body(raw, api_schema.ChatBody)
        longest = body.max_completion_tokens
        new = NewRequest(
            **self._shared(body, request_id or "chatcmpl-" + mint_request_id()[4:]),
            api="chat",
            sampling=body.sampling(body.wanted_logprobs),
            turns=turns_of(body.messages),
            terms=body.terms(body.max_tokens if longest is None else longest),
            prompt_field="messages",
            max_tokens_field="max_tokens" if longest is None else "max_completion_tokens",
        )
        return await self._openai(body, new, [])

    async def completions(self, raw: bytearray, request_id: str) -> ASGIApp:
        """POST /v1/completions."""
        body = api_schema.read_body(raw, api_schema.CompletionBody)
        texts, ids = api_schema.prompts_of(body.prompt)
        if body.best_of is not None and body.best_of != (body.n or 1):
            raise invalid("best_of", "the same as n", body.best_of)
        if body.echo and (body.logprobs is not None or texts is None):
            raise invalid("echo", "false with logprobs or token ids", True)
        new = NewRequest(
            **self._shared(body, request_id or "cmpl-" + mint_request_id()[4:]),
            api="completion",
            sampling=body.sampling(-1 if body.logprobs is None else body.logprobs),
            texts=texts,
            ids=ids,
            terms=body.terms(self._settings.default_max_tokens if body.max_tokens is None else body.max_tokens),
        )
        return await self._openai(body, new, list(texts or ()) if body.echo else [])

    async def generate(self, raw: bytearray, request_id: str) -> ASGIApp:
        """POST /v1/generate: idempotent by the request's id when the client gives one."""
        body = api_schema.read_body(raw, api_schema.GenerateBody)
        self._refuse_stream(body)
        if (body.prompt is None) == (body.tokens is None):
            raise Refusal("invalid", "prompt: expected exactly one of prompt and tokens", field="prompt")
        if _count(body.n) != 1:
            raise invalid("n", "1", body.n)
        given = body.request_id or request_id
        new = NewRequest(
            **self._shared(body, given or "gen-" + mint_request_id()[4:]),
            api="generate",
            sampling=body.sampling(-1),
            texts=None if body.prompt is None else [body.prompt],
            ids=None if body.tokens is None else [body.tokens],
            terms=body.terms(body.max_tokens),
            is_resumable=bool(given),
            digest=api_schema.digest_of(raw),
            prompt_field="prompt" if body.tokens is None else "tokens",
        )
        request = await self._admission.admit(new)
        return self._whole(request, lambda: generate_body(request))

    async def batch(self, raw: bytearray, request_id: str) -> ASGIApp:
        """POST /v1/batch."""
        body = api_schema.read_body(raw, api_schema.BatchBody)
        self._refuse_stream(body)
        if (body.prompts is None) == (body.tokens is None):
            raise Refusal("invalid", "prompts: expected exactly one of prompts and tokens", field="prompts")
        name = "prompts" if body.tokens is None else "tokens"
        n_prompts = len(body.prompts or body.tokens or ())
        if not 1 <= n_prompts <= self._settings.max_batch:
            raise invalid(name, f"1 to {self._settings.max_batch} prompts", n_prompts)
        new = NewRequest(
            **self._shared(body, request_id or "batch-" + mint_request_id()[4:]),
            api="generate",
            sampling=body.sampling(-1),
            texts=body.prompts,
            ids=body.tokens,
            terms=body.terms(body.max_tokens),
            prompt_field=name,
        )
        request = await self._admission.admit(new)
        return self._whole(request, lambda: batch_body(request))

    def _shared(self, body: api_schema.RequestFields, request_id: str) -> dict[str, Any]:
        return {
            "request": request_id,
            "model": body.model or "",
            "n": _count(body.n),
            "is_whole": not body.stream,
            "request_field": "request_id" if isinstance(body, api_schema.GenerateBody) else "X-Request-Id",
        }

    async def _openai(self, body: api_schema.RequestFields, new: NewRequest, echo: list[str]) -> ASGIApp:
        if body.stream_options is not None and not body.stream:
            raise Refusal("invalid", "stream_options: expected only beside stream: true", field="stream_options")
        request = await self._admission.admit(new)
        name = self._settings.model_name
        if not body.stream:
            return self._whole(request, lambda: whole_body(request, name, self._model, echo))
        with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        writer = ChunkWriter(request, name, self._model, with_usage=with_usage, echo=echo)
        return EventStream(self._desk, request, writer, self._settings.request_timeout_s, self._settings.sse_ping_s)

    def _whole(self, request: Request, render: Callable[[], bytes]) -> ASGIApp:
        return WholeAnswer(self._desk, request, render, self._settings.request_timeout_s)

    def _refuse_stream(self, body: api_schema.RequestFields) -> None:
        if body.stream:
            raise invalid("stream", "false on this route", True)

    # -- facts ----------------------------------------------------------------------------------------------------

    async def models(self, http: HttpRequest, request_id: str) -> ASGIApp:
        """GET /v1/models."""
        return _json({"object": "list", "data": [self._card()]})

    async def model(self, http: HttpRequest, request_id: str) -> ASGIApp:
        """GET /v1/models/{id}."""
        name = http.path_params["name"]
        if name != self._settings.model_name:
            detail = f"model: expected {self._settings.model_name!r}, got {name[:200]!r}"
            raise Refusal("not_found", detail, field="model", name="model_not_found")
        return _json(self._card())

    async def health(self, http: HttpRequest, request_id: str) -> ASGIApp:
        """GET /v1/health: 200 only when requests can be served."""
        is_serving, parts = self._status.health()
        return _json(parts, 200 if is_serving else 503)

    async def summary(self, http: HttpRequest, request_id: str) -> ASGIApp:
        """GET /v1/metrics."""
        return _json(await self._status.summary())

    async def exposition(self, http: HttpRequest, request_id: str) -> ASGIApp:
        """GET /metrics."""
        return Response(await self._status.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def _card(self) -> dict[str, Any]:
        settings = self._settings
        card = {"id": settings.model_name, "object": "model", "created": self._started_s, "owned_by": "tardigrade"}
        return {**card, "max_model_len": settings.max_length}


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _count(n: int | None) -> int:
    return 1 if n is None else n
