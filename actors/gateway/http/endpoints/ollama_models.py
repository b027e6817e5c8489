"""Ollama's endpoints about models: the one that is served, and what this server does not do with models."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response, read
from actors.gateway.http.endpoints.ollama import ModelBody
from actors.gateway.http.endpoints.server_facts import server_version
from actors.gateway.http.formats.ollama_lines import time_text
from actors.gateway.text.model_card import ModelCard, model_card

_FOREVER = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


class ShowBody(ModelBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /api/show."""

    verbose: bool | None = None  # has no effect


async def running(services: Services, call: Call) -> ASGIApp:
    """GET /: what Ollama's command asks for before it does anything else."""
    return PlainTextResponse("Tardigrade is running")


async def tags(services: Services, call: Call) -> ASGIApp:
    """GET /api/tags: the models that can be asked for."""
    return json_response({"models": [await _entry(services)]})


async def processes(services: Services, call: Call) -> ASGIApp:
    """GET /api/ps: the models that are loaded."""
    entry = await _entry(services)
    more = {"expires_at": time_text(_FOREVER), "size_vram": entry["size"], "context_length": services.settings.max_length}
    return json_response({"models": [{**entry, **more}]})


async def show(services: Services, call: Call) -> ASGIApp:
    """POST /api/show: facts about a model. Raises: Refusal."""
    body = await read(services, call, ShowBody)
    body.check_model(services)
    card, settings = await _card(services), services.settings
    family = card.family or "unknown"
    facts = {
        "general.architecture": family,
        "general.parameter_count": card.n_parameters,
        f"{family}.context_length": settings.max_length,
        f"{family}.vocab_size": services.model.vocabulary,
    }
    return json_response(
        {
            "modelfile": f"FROM {settings.model_name}\n",
            "parameters": "",
            "template": services.model.chat_template,
            "details": _details(card),
            "model_info": facts,
            "capabilities": ["completion"],
            "modified_at": time_text(services.started_s),
        }
    )


async def _card(services: Services) -> ModelCard:
    return await asyncio.to_thread(model_card, services.settings.model_folder)


async def _entry(services: Services) -> dict[str, Any]:
    """The served model in a list of models. Without a tag it has Ollama's usual one, which requests may leave out."""
    card, name = await _card(services), services.settings.model_name
    tagged = name if ":" in name else f"{name}:latest"
    identity = services.manager.identity
    return {
        "name": tagged,
        "model": tagged,
        "modified_at": time_text(services.started_s),
        "size": card.n_bytes,
        "digest": (identity.model + identity.tokenizer).hex(),
        "details": _details(card),
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
    Endpoint("GET", "/", running, query=None, media_type="text/plain"),
    Endpoint("GET", "/api/version", server_version, query=None),
    Endpoint("GET", "/api/tags", tags, query=None),
    Endpoint("GET", "/api/ps", processes, query=None),
    Endpoint("POST", "/api/show", show, body=ShowBody),
)
