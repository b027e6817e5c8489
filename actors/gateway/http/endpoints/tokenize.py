"""Text to token ids and back without generating, with the fields of vLLM's endpoints of these names."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
from starlette.types import ASGIApp

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.bodies.fields.ranges import Turns
from actors.gateway.bodies.fields.wanted_template import check_continued, wanted_template
from actors.gateway.bodies.fields.wanted_tools import wanted_tools
from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response, read
from actors.gateway.requests.model_names import check_model
from actors.gateway.requests.refusals import check_one_given, invalid
from actors.gateway.text.models.model_files import tokenizer_settings
from messages.generation.terms import TokenId


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None


class TokenizeBody(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize: exactly one of `prompt` and `messages`. None is the default."""

    prompt: str | None = None
    messages: Turns | None = None
    tools: list[dict[str, Any]] | None = None  # that the template tells a conversation of
    add_special_tokens: bool | None = None  # true for a prompt; a conversation has those of its template
    return_token_strs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class DetokenizeBody(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /detokenize."""

    tokens: list[TokenId]


async def tokenize(services: Services, call: Call) -> ASGIApp:
    """POST /tokenize: the token ids of a text or a conversation, {"count", "max_model_len", "tokens", "token_strs"}."""
    body = await read(services, call, TokenizeBody)
    check_model(body.model or "", services.settings)
    tokens = await _tokens(services, body, call)
    strings = None
    if body.return_token_strs:
        strings = await services.admission.builder.encoder.texts_of(tokens, caller=call.origin.caller)
    size = {"count": len(tokens), "max_model_len": services.settings.max_length}
    return json_response({**size, "tokens": tokens, "token_strs": strings}, ignored=call.ignored)


async def detokenize(services: Services, call: Call) -> ASGIApp:
    """POST /detokenize: the text of token ids, {"prompt"}."""
    body = await read(services, call, DetokenizeBody, "tokens")
    check_model(body.model or "", services.settings)
    encoder = services.admission.builder.encoder
    ids = encoder.check_ids(body.tokens, "tokens") if len(body.tokens) else np.empty(0, "<i4")
    return json_response({"prompt": await encoder.decode(ids, "tokens", caller=call.origin.caller)}, ignored=call.ignored)


async def tokenizer_info(services: Services, call: Call) -> ASGIApp:
    """GET /tokenizer_info: the tokenizer's own settings, as its folder has them, its class and the chat template."""
    own = await asyncio.to_thread(tokenizer_settings, services.settings.model_folder)
    return json_response(
        {"tokenizer_class": type(services.model).__name__, **own, "chat_template": services.model.chat_template}
    )


async def _tokens(services: Services, body: TokenizeBody, call: Call) -> list[int]:
    encoder, caller = services.admission.builder.encoder, call.origin.caller
    check_one_given(call.ignored, prompt=body.prompt, messages=body.messages)
    if body.messages is not None:
        if body.add_special_tokens:
            raise invalid("add_special_tokens", "false with messages, whose template writes them", True)
        turns, options = turns_of(body.messages), wanted_template(msgspec.structs.asdict(body))
        if options.continues_last:
            check_continued(turns, "continue_final_message")
        offered = wanted_tools({"tools": body.tools})
        told = offered.as_openai() if offered is not None else ()
        return await encoder.encode_chat(turns, "messages", told, options, caller=caller)
    if body.tools:
        raise invalid("tools", "none beside prompt, which no template tells of them", body.tools)
    prompts, is_special = [body.prompt or ""], body.add_special_tokens is not False
    return (await encoder.encode(prompts, "prompt", caller=caller, add_special_tokens=is_special))[0]


ENDPOINTS = (
    Endpoint("POST", "/tokenize", tokenize, body=TokenizeBody),
    Endpoint("POST", "/detokenize", detokenize, body=DetokenizeBody),
    Endpoint("GET", "/tokenizer_info", tokenizer_info, query=None),
)
