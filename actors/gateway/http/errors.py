"""Errors in OpenAI's format, {"error": {"message", "type", "param", "code"}}, and in those of other APIs at their paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from actors.gateway.bodies.body_errors import MOST_SHOWN
from actors.gateway.bodies.fields.foreign_fields import NEAR
from actors.gateway.bodies.request_name import Origin
from actors.gateway.requests.refusal_log import NO_CALL, RefusalLog
from actors.gateway.requests.refusals import Refusal, journal_unavailable
from actors.gateway.requests.request_spec import Ended
from messages.outcomes import Code, FineCode

_TYPES: dict[int, str] = dict.fromkeys((307, 400, 401, 403, 404, 405, 409, 413, 422, 431), "invalid_request_error")
_TYPES |= {429: "rate_limit_error", 503: "service_unavailable_error"}
_ANTHROPIC_TYPES: dict[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
ANTHROPIC_HEADER = "anthropic-version"  # Anthropic's clients send it with every request
_TOO_LONG = "prompt is too long"  # as Anthropic's API begins it
THREAD_FIELD = "thread"  # of Anthropic's API: the server would hold the conversation
_NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": [THREAD_FIELD]}
_MOST_PATH_CHARACTERS = 120
_ELSEWHERE = {  # vLLM's, SGLang's, SageMaker's
    "/reset_prefix_cache": "/v1/cache/reset",
    "/flush_cache": "/v1/cache/reset",
    "/invocations": "/v1/chat/completions",
}
_NO_RANKING = "this server ranks and classifies nothing; /v1/embeddings gives vectors, with --embedding-model"
_NO_STORE = "this server keeps no files; POST /v1/batch answers many prompts in one call"
_TEXT_ONLY = "this server reads and writes texts only"
_ABSENT = {  # what other servers have, by the last part of a path or the one before it, and what there is instead
    **dict.fromkeys(("rerank", "score", "classify", "pooling", "moderations"), _NO_RANKING),
    **dict.fromkeys(("files", "uploads", "batches"), _NO_STORE),
    **dict.fromkeys(("images", "audio", "videos", "realtime"), _TEXT_ONLY),
    **dict.fromkeys(("assistants", "threads", "conversations"), "/v1/responses goes on from previous_response_id"),
    **dict.fromkeys(("fine_tuning", "evals", "vector_stores", "containers"), "there is no such thing here"),
    **dict.fromkeys(("sleep", "wake_up", "is_sleeping"), "the model stays loaded; supervisor stop ends the server"),
    **dict.fromkeys(("load_lora_adapter", "unload_lora_adapter"), "there is no LoRA here"),
}
_BASE = "/v1"
_OF_MODELS = ("/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs")  # Ollama's, none is here
_WHY_BY_STATUS: dict[int, Code | FineCode] = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}
_LOGGED_HEADERS = {"idempotency-key": "request", "x-request-id": "x_request_id", "traceparent": "traceparent"}
_OPENAI_NAMES: dict[Code, str] = {"too_long": "context_length_exceeded", "internal": "internal_error"}


ErrorBody = Callable[[int, str, str, str], dict[str, Any]]


def error_body(status: int, message: str, field: str = "", name: str = "") -> dict[str, Any]:
    """The JSON object of an error."""
    kind = _TYPES.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "param": field or None, "code": name or None}}


def ollama_error(status: int, message: str, field: str = "", name: str = "") -> dict[str, Any]:
    """The JSON object of an error in Ollama's format."""
    return {"error": message}


def anthropic_error(status: int, message: str, field: str = "", name: str = "") -> dict[str, Any]:
    """The JSON object of an error in Anthropic's format. Agents know by its words that a prompt is too long, and shorten it.
    The tool runners of Anthropic's clients know by its details that there are no threads, and send the whole conversation."""
    if name == _OPENAI_NAMES["too_long"]:
        message = f"{_TOO_LONG}: {message}"
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    details = {"details": _NO_THREADS} if field == THREAD_FIELD else {}
    return {"type": "error", "error": {"type": kind, "message": message, **details}}


_BODIES_BY_PATH: tuple[tuple[str, ErrorBody], ...] = (("/api/", ollama_error), ("/v1/messages", anthropic_error))


def error_body_at(path: str) -> ErrorBody:
    """The format of errors at a path."""
    return next((body for start, body in _BODIES_BY_PATH if path.startswith(start)), error_body)


def error_body_for(http: HttpRequest) -> ErrorBody:
    """The format of errors for the client of a request whose path belongs to no API, or to several. Clients that put /v1 before
    their paths are known by the rest of the path, others by their headers."""
    if http.headers.get("user-agent", "").startswith("ollama"):
        return ollama_error
    if ANTHROPIC_HEADER in http.headers:
        return anthropic_error
    return next((body for part, body in _BODIES_BY_PATH if part in http.url.path), error_body)


def error_response(refusal: Refusal, headers: dict[str, str] | None = None, body_of: ErrorBody = error_body) -> Response:
    """A refusal as an HTTP response, with Retry-After if a retry may help. `body_of`: its body from status, message, field and
    code."""
    headers = {**refusal.headers, **(headers or {})}
    if refusal.retry_after_s:
        headers["Retry-After"] = str(math.ceil(refusal.retry_after_s))
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    name = refusal.fine_code or _OPENAI_NAMES.get(refusal.code, refusal.code)
    body = body_of(refusal.status, refusal.detail, refusal.field, name)
    return Response(msgspec.json.encode(body), refusal.status, headers, media_type="application/json")


def refusal_of(ended: Ended) -> Refusal:
    """The failure of an accepted request as a refusal, for its HTTP status and message."""
    if ended.code == "unavailable":  # only a request that could not be recorded ends so
        return journal_unavailable()
    return Refusal(ended.code or "internal", ended.detail or "the request failed", retry_after_s=ended.retry_after_s)


def without_slash(path: str) -> Response:
    """The redirection of a POST to its path without the slash at the end, in words for clients that do not follow it."""
    meant = path.removesuffix("/")
    return error_response(
        Refusal("not_found", f"path: expected {meant}, got {path}", status=307), {"Location": meant}, error_body_at(path)
    )


async def on_http_exception(
    refusals: RefusalLog, origin_of: Callable[[HttpRequest], Origin], http: HttpRequest, error: HTTPException
) -> Response:
    """The response to a request that Starlette refuses: an unknown path or a wrong method. `refusals`: the log of them.
    `origin_of`: where a call comes from, for its trace."""
    path = http.url.path[:_MOST_PATH_CHARACTERS]
    detail = f"{http.method} {path}: {error.detail}"
    body_of = error_body_at(path)
    if error.status_code == 404:
        detail, body_of = _unknown_path(http), error_body_for(http)
    elif error.status_code == 405:
        allowed = ", ".join(sorted(dict(error.headers or {}).get("Allow", "another method").split(", ")))
        detail = f"method: expected {allowed} for {path}, got {http.method}"
    refusal = Refusal(_WHY_BY_STATUS.get(error.status_code, "invalid"), detail, status=error.status_code)
    traced = refusals.note(refusal, path, call=NO_CALL if refusals.trace is None else origin_of(http).call_trace)
    return error_response(refusal, {**(error.headers or {}), **traced}, body_of)


def _unknown_path(http: HttpRequest) -> str:
    """What is said of a path that no endpoint has: what there is instead of another server's endpoint, else the nearest path of
    any API, as clients of Anthropic's and Ollama's put /v1 before theirs. Without one, the paths of its API, or where they are
    shown if they are many."""
    if http.url.path.startswith(_OF_MODELS):
        called = f"{http.method} {http.url.path[:_MOST_PATH_CHARACTERS]}"
        return f"path: models cannot be made or deleted here, got {called}; GET /api/tags names the one served"
    for part in http.url.path.split("/")[1:4]:
        if part in _ABSENT:
            return f"path: unknown, got {http.method} {http.url.path[:_MOST_PATH_CHARACTERS]}; {_ABSENT[part]}"
    return f"path: unknown, got {http.method} {http.url.path[:_MOST_PATH_CHARACTERS]}; {_nearest(http)}"


def _nearest(http: HttpRequest) -> str:
    """The hint for a path that no other server has either."""
    form, path = error_body_at(http.url.path), http.url.path
    if path.rstrip("/") == _BASE:
        return f"clients of OpenAI take it as their base URL; GET {_BASE}/models is a path below it"
    paths = sorted(route.path.replace(":path}", "}") for route in http.app.routes)
    same = dict.fromkeys(known for known in paths if form is error_body or error_body_at(known) is form)
    longer = [known for known in paths if known.startswith(f"{path}/")]  # of "/v1/chat": what one stopped short of
    near = longer if len(longer) == 1 else get_close_matches(path, paths, 1, NEAR)
    near = [_ELSEWHERE[path]] if path in _ELSEWHERE else near
    if not near:  # of Azure's /openai/deployments/NAME/chat/completions: its end
        ends = (known for known in paths if known.startswith(f"{_BASE}/") and path.endswith(known.removeprefix(_BASE)))
        near = sorted(ends, key=len)[-1:]
    if not near:
        return "GET /docs shows them all" if len(same) > MOST_SHOWN else f"known are {', '.join(same)}"
    base = f" The base URL of a client of OpenAI ends with {_BASE}" if near[0] == f"{_BASE}{path}" else ""
    return f"did you mean {near[0]}?{base}"


async def on_exception(http: HttpRequest, error: Exception) -> Response:
    """The response to an unexpected exception, which is logged. The client gets no details."""
    named = {field: http.headers[header] for header, field in _LOGGED_HEADERS.items() if header in http.headers}
    structlog.get_logger().error("http handler failed", path=http.url.path, **named, exc_info=error)
    refusal = Refusal("internal", "an internal error; the server's log has the details")
    return error_response(refusal, body_of=error_body_at(http.url.path))
