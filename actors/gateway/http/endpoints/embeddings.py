"""The endpoints that compute embeddings: OpenAI's `/v1/embeddings`, Ollama's `/api/embed` and `/api/embeddings`."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np
from starlette.types import ASGIApp

from actors.gateway.bodies.fields.prompts import prompts_of
from actors.gateway.bodies.fields.ranges import AnyInt, ModelName
from actors.gateway.custody.hold import answer_hold, was_accepted
from actors.gateway.custody.kept_request import request_bytes
from actors.gateway.embeddings.embeddings import Embeddings, EmbeddingSpec, Vectors, embeddings_for
from actors.gateway.http.answers.hangup import EXTENSION, Hangup
from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response, read
from actors.gateway.http.endpoints.ollama import ModelBody
from actors.gateway.requests.refusals import invalid
from messages.ids import mint_request_id

_CUT = -1  # longer texts are cut to what the model takes


class EmbeddingsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/embeddings: OpenAI's fields, vLLM's `truncate_prompt_tokens`, and `prompt_name` of sentence-transformers."""

    input: str | list[Any]
    model: ModelName | None = None
    encoding_format: str | None = None  # "float", the default, or "base64"
    dimensions: AnyInt | None = None
    truncate_prompt_tokens: AnyInt | None = None
    prompt_name: str | None = None
    user: str | None = None  # has no effect
    priority: AnyInt | None = None  # has no effect: texts of all calls take turns


class OllamaEmbedBody(ModelBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /api/embed."""

    input: str | list[str]
    truncate: bool | None = None  # true: longer texts are cut
    dimensions: AnyInt | None = None
    options: dict[str, Any] | None = None  # has no effect
    keep_alive: float | str | None = None  # the model stays loaded as long as the server runs


class OllamaEmbeddingsBody(ModelBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /api/embeddings, the older of the two."""

    prompt: str
    options: dict[str, Any] | None = None  # has no effect
    keep_alive: float | str | None = None


async def embeddings(services: Services, call: Call) -> ASGIApp:
    """POST /v1/embeddings: vectors of texts. Raises: Refusal."""
    body = await read(services, call, EmbeddingsBody, "input")
    model = embeddings_for(services.embeddings, body.model or "")
    if body.encoding_format not in (None, "float", "base64"):
        raise invalid("encoding_format", '"float" or "base64"', body.encoding_format)
    texts, ids = prompts_of(body.input, "input")
    names = _names(call, "embeddings")
    options = body.dimensions, body.truncate_prompt_tokens, body.prompt_name
    spec = EmbeddingSpec("input", texts, ids, *options, names, call.origin.call_trace)
    found = await _while_connected(call, model, spec)
    shown = found.values.tolist() if body.encoding_format != "base64" else [_base64(row) for row in found.values]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(shown)]
    usage = {"prompt_tokens": found.n_tokens, "total_tokens": found.n_tokens}
    return _answer(call, names, found, {"object": "list", "data": data, "model": model.model_name, "usage": usage})


async def ollama_embed(services: Services, call: Call) -> ASGIApp:
    """POST /api/embed: vectors of texts. Raises: Refusal."""
    began_s = time.monotonic()
    body = await read(services, call, OllamaEmbedBody)
    model = _model(services, body)
    texts = [body.input] if isinstance(body.input, str) else body.input
    cut = None if body.truncate is False else _CUT
    names = _names(call, "ollama_embed")
    spec = EmbeddingSpec("input", texts, None, body.dimensions, cut, names=names, call=call.origin.call_trace)
    found = await _while_connected(call, model, spec)
    answer = {
        "model": body.model or body.name or model.model_name,
        "embeddings": found.values.tolist(),
        "total_duration": int((time.monotonic() - began_s) * 1e9),
        "load_duration": 0,
        "prompt_eval_count": found.n_tokens,
    }
    return _answer(call, names, found, answer)


async def ollama_embeddings(services: Services, call: Call) -> ASGIApp:
    """POST /api/embeddings: the vector of one text. Raises: Refusal."""
    body = await read(services, call, OllamaEmbeddingsBody)
    model = _model(services, body)
    names = _names(call, "ollama_embeddings")
    spec = EmbeddingSpec("prompt", [body.prompt], truncate_prompt_tokens=_CUT, names=names, call=call.origin.call_trace)
    found = await _while_connected(call, model, spec)
    return _answer(call, names, found, {"embedding": found.values[0].tolist()})


async def _while_connected(call: Call, model: Embeddings, spec: EmbeddingSpec) -> Vectors:
    """The vectors. The computation is abandoned when the client leaves; if this process dies, the next one computes them from
    the bytes of the call. Raises: Refusal."""
    hangup: Hangup = call.scope.get("extensions", {}).get(EXTENSION) or Hangup()
    hold = answer_hold(call.scope)

    def accepted() -> None:
        if hold is not None:
            hold.begin_computing(spec.names["request"], lambda: request_bytes(call.scope, call.body))

    known = was_accepted(call.scope)
    work = asyncio.ensure_future(model.embed(spec, call.origin.caller, was_accepted=known, on_accepted=accepted))
    watch = hangup.watch(partial(_cancel, work))
    try:
        return await work
    finally:
        watch.cancel()
        work.cancel()  # this call may have been cancelled itself


def _names(call: Call, api: str) -> dict[str, str]:
    """What the log says of who asks: a new id, its client's X-Request-Id and trace where it has them, and the API."""
    origin = call.origin
    others = {"x_request_id": origin.correlation_id, "trace": origin.trace_id.hex()}
    return {"request": mint_request_id(), **{name: value for name, value in others.items() if value}, "api": api}


def _answer(call: Call, names: Mapping[str, str], found: Vectors, value: object) -> ASGIApp:
    """The answer, with the id of the call and what is told of limits in its headers."""
    response = json_response(value, ignored=call.ignored)
    response.headers.update({**found.headers, "X-Request-Id": names["request"]})
    return response


def _cancel(work: asyncio.Future[Vectors]) -> None:
    work.cancel()


def _model(services: Services, body: ModelBody) -> Embeddings:
    """The model that a body of Ollama's asks for. Raises: Refusal."""
    return embeddings_for(services.embeddings, body.asked_model)


def _base64(row: np.ndarray) -> str:
    """The components as little-endian float32, as OpenAI's clients ask for by default."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


ENDPOINTS = (
    Endpoint("POST", "/v1/embeddings", embeddings, needs_open=True, body=EmbeddingsBody, statuses=(504,)),
    Endpoint("POST", "/api/embed", ollama_embed, needs_open=True, body=OllamaEmbedBody, statuses=(504,)),
    Endpoint("POST", "/api/embeddings", ollama_embeddings, needs_open=True, body=OllamaEmbeddingsBody, statuses=(504,)),
)
