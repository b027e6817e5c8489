"""The operator's endpoint for caches, and what gateways ask of each other about it."""

from __future__ import annotations

import msgspec
from starlette.types import ASGIApp

from actors.gateway.cache_reset.cache_reset import FORGET_PATH, AnswersToForget, Forgotten
from actors.gateway.cache_reset.reset_body import CacheResetBody, wanted_of
from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response
from actors.pages.forgetting import Forgetting


async def reset(services: Services, call: Call) -> ASGIApp:
    """POST /v1/cache/reset: forget cached prefixes and kept answers, all of them or some: {"pages", "answers"}.

    An unknown field is refused: without it more would be forgotten.
    """
    body = await services.body_reader.read(call.body or bytearray(b"{}"), CacheResetBody, "tokens")
    wanted = await wanted_of(body, services.settings, services.models, services.admission.builder_of)
    return json_response(await services.caches.forget(wanted))


async def forget_answers(services: Services, call: Call) -> ASGIApp:
    """POST, of another gateway: forget kept answers of this one."""
    wanted = msgspec.json.decode(call.body, type=AnswersToForget)
    n_answers = services.caches.forget_answers(Forgetting(wanted.scope, wanted.tokens, wanted.older_than_s, wanted.model))
    return json_response(Forgotten(n_answers))


ENDPOINTS = (Endpoint("POST", "/v1/cache/reset", reset, needs_admin=True, body=CacheResetBody, statuses=(403,)),)
FOR_GATEWAYS = (Endpoint("POST", FORGET_PATH, forget_answers),)
