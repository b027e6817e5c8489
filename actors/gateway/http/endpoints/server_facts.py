"""The endpoints about the server itself: models, health, metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp

from actors.gateway.embeddings.embeddings import Embeddings
from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response
from actors.gateway.http.errors import ANTHROPIC_HEADER
from actors.gateway.models.served_models import ServedModel
from actors.gateway.requests.model_names import check_model, is_same_model
from actors.gateway.tenants.own_usage import own_exposition, own_summary
from messages.generation.sampling import Sampling
from messages.release import release_version

_PLAIN = Sampling()


async def models(services: Services, call: Call) -> ASGIApp:
    """GET /v1/models: the models that are served. Anthropic's clients get them as Anthropic's API shows models."""
    embeddings = [] if services.embeddings is None else [_embedding_card(services, services.embeddings)]
    cards = [*(_card(services, one) for one in services.models.all), *embeddings]
    if not _is_anthropic(call):
        return json_response({"object": "list", "data": cards})
    ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]}
    return json_response({"data": [_anthropic_card(card) for card in cards], "has_more": False, **ends})


async def model(services: Services, call: Call) -> ASGIApp:
    """GET /v1/models/{id}: one of them; all of them without an id."""
    if not call.parameters["name"]:
        return await models(services, call)
    if services.embeddings is not None and is_same_model(call.parameters["name"], services.embeddings.model_name):
        card = _embedding_card(services, services.embeddings)
    else:
        card = _card(services, _named(services, call.parameters["name"]))
    return json_response(_anthropic_card(card) if _is_anthropic(call) else card)


async def health(services: Services, call: Call) -> ASGIApp:
    """GET /v1/health and /ready: 200 only while new requests are accepted and computed."""
    is_serving, parts = services.status.health()
    return json_response(parts, 200 if is_serving else 503)


async def live(services: Services, call: Call) -> ASGIApp:
    """GET /live: 200 while this gateway answers at all, whatever the rest of the server does."""
    return json_response({"status": "live"})


async def server_version(services: Services, call: Call) -> ASGIApp:
    """GET /version: that of the server."""
    return json_response({"version": release_version()})


async def summary(services: Services, call: Call) -> ASGIApp:
    """GET /v1/metrics: the latencies of the gateway that answers. /metrics has those of all gateways."""
    found, tenant = await services.status.summary(), _tenant(services, call)
    return json_response(found if tenant is None else own_summary(found, tenant))


async def exposition(services: Services, call: Call) -> ASGIApp:
    """GET /metrics: those of all actors, for Prometheus. With API keys one of the role user shows its own tenant alone."""
    found, tenant = await services.status.exposition(), _tenant(services, call)
    text = found if tenant is None else own_exposition(found, tenant)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _tenant(services: Services, call: Call) -> str | None:
    """The tenant whose usage alone a call may see; None: that of all."""
    return None if services.keys is None or call.origin.sees_all else services.keys.tenant_of(call.origin.caller)


def _named(services: Services, name: str) -> ServedModel:
    """The model that generates text and has this name. Raises: Refusal."""
    for other in services.models.all[1:]:
        if is_same_model(name, other.name):
            return other
    check_model(name, services.settings)
    return services.models.main


def _card(services: Services, model: ServedModel) -> dict[str, Any]:
    settings = model.settings
    card = {"id": settings.model_name, "object": "model", "created": services.started_s, "owned_by": "tardigrade"}
    always = {name: getattr(_PLAIN, name) for name in ("temperature", "top_p", "top_k")}
    sampling = {**always, **services.admission.builder_of(model.number).sampling_defaults}
    return {**card, "max_model_len": settings.max_length, "default_sampling": sampling}


def _is_anthropic(call: Call) -> bool:
    return any(name == ANTHROPIC_HEADER.encode() for name, _ in call.scope["headers"])


def _anthropic_card(card: dict[str, Any]) -> dict[str, Any]:
    created = datetime.fromtimestamp(card["created"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    names = {"type": "model", "id": card["id"], "display_name": card["id"], "created_at": created}
    return {**names, "max_input_tokens": card["max_model_len"], "max_tokens": card["max_model_len"]}


def _embedding_card(services: Services, model: Embeddings) -> dict[str, Any]:
    card = {"id": model.model_name, "object": "model", "created": services.started_s, "owned_by": "tardigrade"}
    return {**card, "max_model_len": model.text.max_length}


ENDPOINTS = (
    Endpoint("GET", "/v1/models", models, query=None),
    Endpoint("GET", "/v1/models/{name:path}", model, query=None),
    Endpoint("GET", "/v1/health", health, query=None, is_open=True),
    Endpoint("GET", "/health", health, query=None, is_open=True),
    Endpoint("GET", "/ready", health, query=None, is_open=True),
    Endpoint("GET", "/readyz", health, query=None, is_open=True),
    Endpoint("GET", "/ping", health, query=None, is_open=True),  # SageMaker's and vLLM's
    Endpoint("POST", "/ping", health, query=None, is_open=True),
    Endpoint("GET", "/live", live, query=None, is_open=True),
    Endpoint("GET", "/livez", live, query=None, is_open=True),
    Endpoint("GET", "/version", server_version, query=None),
    Endpoint("GET", "/v1/metrics", summary, query=None, shows_metrics=True),
    Endpoint("GET", "/metrics", exposition, query=None, shows_metrics=True, media_type="text/plain"),
)
