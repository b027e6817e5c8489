"""What a body of POST /v1/cache/reset asks for, as what is to be forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
import numpy as np

from actors.gateway.admission.caller import caller_of_name, caller_of_tenant
from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.admission.spec_builder import SpecBuilder
from actors.gateway.bodies.fields.ranges import Turns
from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.model_names import check_model, is_same_model
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.template_options import TemplateOptions
from actors.pages.forgetting import Forgetting
from messages.generation.terms import TokenId

_PREFIXES = ("prompt", "tokens", "messages")


class CacheResetBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/cache/reset. What meets all conditions is forgotten; without one, everything."""

    model: str | None = None  # of the main or of the fallback model; None: of both
    caller: str | None = None  # the tenant, or the value of the header that names it
    prompt: str | None = None  # the prompts begin with this text
    tokens: list[TokenId] | None = None  # or with these tokens
    messages: Turns | None = None  # or with this conversation
    older_than_s: Annotated[float, msgspec.Meta(ge=0.0)] | None = None  # it was computed longer ago


async def wanted_of(
    body: CacheResetBody, settings: GatewaySettings, models: ServedModels, builder_of: Callable[[int], SpecBuilder]
) -> Forgetting:
    """What is to be forgotten. A prefix has the tokens of the model that is named, or of the main one. `builder_of`: the number
    of a model. Raises: Refusal naming the field."""
    model = _number_of(body.model, models) if body.model else None
    if body.caller is not None and not settings.names_callers:
        detail = "caller: expected none without API keys and while gateway.caller_header names no header"
        raise Refusal("invalid", detail, field="caller")
    caller_of = caller_of_tenant if settings.keys_file else caller_of_name
    tokens = await _tokens(body, builder_of(model or 0).encoder)
    condition = model if len(models.all) > 1 else None  # all caches are of the only model
    return Forgetting(None if body.caller is None else caller_of(body.caller), tokens, body.older_than_s or 0.0, condition)


def _number_of(name: str, models: ServedModels) -> int:
    found = [model.number for model in models.all if is_same_model(name, model.name)]
    if not found:
        check_model(name, models.main.settings)
    return found[0]


async def _tokens(body: CacheResetBody, encoder: PromptEncoder) -> bytes:
    given = [name for name in _PREFIXES if getattr(body, name) is not None]
    if len(given) > 1:
        raise invalid(given[1], f"none beside {given[0]}", getattr(body, given[1]))
    if body.tokens is not None:
        ids = encoder.check_ids(body.tokens, "tokens") if len(body.tokens) else []
    elif body.messages is not None:
        ids = await encoder.encode_chat(turns_of(body.messages), "messages", options=TemplateOptions(has_answer_head=False))
    elif body.prompt is not None:
        ids = (await encoder.encode([body.prompt], "prompt"))[0]
    else:
        return b""
    if not len(ids):
        raise invalid(given[0], "at least one token", getattr(body, given[0]))
    return np.asarray(ids, "<i4").tobytes()
