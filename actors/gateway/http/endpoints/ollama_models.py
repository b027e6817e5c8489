"""Ollama's endpoints about models: those that are served, and what is known of each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp

from actors.gateway.http.endpoint import Call, Endpoint, Services, ignored_header, json_response, read
from actors.gateway.http.endpoints.ollama import ModelBody
from actors.gateway.http.endpoints.server_facts import server_version
from actors.gateway.http.formats.ollama_lines import LineWriter, pull_lines, time_text
from actors.gateway.requests.model_names import is_same_model
from actors.gateway.requests.refusals import Refusal, json_text
from actors.gateway.text.model_card import ModelCard, model_card
from actors.gateway.text.models.text_model import TextModel

_FOREVER = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


class ShowBody(ModelBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /api/show."""

    verbose: bool | None = None  # has no effect


class PullBody(ModelBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /api/pull."""

    stream: bool | None = None  # streams are the default
    insecure: bool | None = None  # has no effect


async def tags(services: Services, call: Call) -> ASGIApp:
    """GET /api/tags: the models that can be asked for."""
    return json_response({"models": [await _entry(services, one) for one in _models(services)]})


async def processes(services: Services, call: Call) -> ASGIApp:
    """GET /api/ps: the models that are loaded, which are the same."""
    return json_response({"models": [await _loaded(services, one) for one in _models(services)]})


async def show(services: Services, call: Call) -> ASGIApp:
    """POST /api/show: facts about a model. Raises: Refusal."""
    body = await read(services, call, ShowBody)
    generating, *others = _models(services)
    model = next((one for one in others if is_same_model(body.asked_model, one.name)), generating)
    if model is generating:
        body.check_model(services)
    card = await _card(model)
    family = card.family or "unknown"
    facts = {
        "general.architecture": family,
        "general.parameter_count": card.n_parameters,
        f"{family}.context_length": model.max_length,
    }
    facts |= {f"{family}.{name}": value for name, value in model.facts.items()}
    return json_response(
        {
            "modelfile": f"FROM {model.name}\n",
            "parameters": "",
            "template": model.template,
            "details": _details(card),
            "model_info": facts,
            "capabilities": model.capabilities,
            "modified_at": time_text(services.started_s),
        }
    )


async def pull(services: Services, call: Call) -> ASGIApp:
    """POST /api/pull: says that a served model is here, as clients ask before they use it. Raises: Refusal for others."""
    body = await read(services, call, PullBody)
    asked, names = body.asked_model, dict.fromkeys(name for name in _names(services) if name)
    if not any(is_same_model(asked, name) for name in names):
        served, hint = " or ".join(map(json_text, names)), "another model: supervisor pull MODEL, then supervisor start --model"
        raise Refusal("model_not_found", f"model: expected {served}, got {json_text(asked)}; {hint} MODEL", field="model")
    if body.stream is False:
        return json_response({"status": "success"}, ignored=call.ignored)
    return Response(b"".join(pull_lines()), headers=ignored_header(call.ignored), media_type=LineWriter.content_type.decode())


def _names(services: Services) -> list[str]:
    return [*(model.name for model in services.models.all), services.settings.embedding_model]


@dataclass(frozen=True)
class _Model:
    """A model of this server. `max_length`: tokens of its context. `facts`: more of them, by Ollama's names."""

    name: str
    folder: str
    digest: str
    max_length: int
    device: str
    capabilities: list[str]
    template: str
    facts: dict[str, int]


def _models(services: Services) -> list[_Model]:
    """The model that generates, and the embedding model if there is one."""
    settings, identity = services.settings, services.models.main.identity
    digest, facts = (identity.model + identity.tokenizer).hex(), {"vocab_size": services.model.vocabulary}
    place = settings.model_folder, digest, settings.max_length, settings.device
    found = [_Model(settings.model_name, *place, _capabilities(services.model), services.model.chat_template, facts)]
    if services.embeddings is not None:
        folder, name = settings.embedding_folder, settings.embedding_model
        digest = blake2b(folder.encode(), digest_size=32).hexdigest()  # no weights are read for it
        place = folder, digest, settings.embedding_length, settings.embedding_device
        found.append(_Model(name, *place, ["embedding"], "", {"embedding_length": settings.embedding_dimensions}))
    return found


def _capabilities(model: TextModel) -> list[str]:
    """What clients ask of a model before they offer it tools, or ask it to think. A template that knows no tools gets them as
    text."""
    can = {"tools": bool(model.chat_template), "thinking": model.reasoning is not None}
    return ["completion", *(name for name, is_so in can.items() if is_so)]


async def _card(model: _Model) -> ModelCard:
    return await asyncio.to_thread(model_card, model.folder)


async def _entry(services: Services, model: _Model) -> dict[str, Any]:
    """A model in a list of models. Without a tag it has Ollama's usual one, which requests may leave out."""
    card = await _card(model)
    tagged = model.name if ":" in model.name else f"{model.name}:latest"
    return {
        "name": tagged,
        "model": tagged,
        "modified_at": time_text(services.started_s),
        "size": card.n_bytes,
        "digest": model.digest,
        "details": _details(card),
    }


async def _loaded(services: Services, model: _Model) -> dict[str, Any]:
    """The same with what Ollama says of a model in memory."""
    entry = await _entry(services, model)
    on_gpu_bytes = 0 if model.device == "cpu" else entry["size"]
    return {
        **entry,
        "expires_at": time_text(_FOREVER),
        "size_vram": on_gpu_bytes,
        "context_length": model.max_length,
    }


def _details(card: ModelCard) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": card.family,
        "families": [card.family] if card.family else [],
        "parameter_size": card.parameter_size,
        "quantization_level": card.dtype,
    }


ENDPOINTS = (
    Endpoint("GET", "/api/version", server_version, query=None),
    Endpoint("GET", "/api/tags", tags, query=None),
    Endpoint("GET", "/api/ps", processes, query=None),
    Endpoint("POST", "/api/show", show, body=ShowBody),
    Endpoint("POST", "/api/pull", pull, body=PullBody),
)
