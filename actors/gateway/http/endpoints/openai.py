"""OpenAI's endpoints that generate: chat completions and completions, streamed or whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from starlette.types import ASGIApp

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.http.endpoint import Call, Endpoint, Services, forwarded, read
from actors.gateway.http.endpoints.streams import generated
from actors.gateway.http.fields.wanted_template import check_continued
from actors.gateway.http.request_identity import RequestName, name_of
from actors.gateway.http.schema import ChatBody, CompletionBody, RequestFields, prompts_of
from actors.gateway.requests.order import BestOf
from actors.gateway.requests.refusals import Refusal, invalid
from messages.generation import NO_TOKEN_LIMIT


async def chat(services: Services, call: Call) -> ASGIApp:
    """POST /v1/chat/completions: the answer to a conversation."""
    if (elsewhere := await forwarded(services, call, call.identity.given_id)) is not None:
        return elsewhere
    body = await read(services, call, ChatBody)
    longest, turns = body.max_completion_tokens, turns_of(body.messages)
    if body.continue_final_message:
        check_continued(turns, "continue_final_message")
    new = body.new_request(
        "chat",
        _name(services, call, body, "/v1/chat/completions", "chatcmpl-"),
        call.origin,
        call.ignored,
        max_tokens=body.max_tokens if longest is None else longest,
        max_tokens_field="max_tokens" if longest is None else "max_completion_tokens",
        logprobs=body.wanted_logprobs,
        **_prompt_logprobs(body, _or_none(body.prompt_logprobs)),
        turns=turns,
        tools=body.offered_tools,
        template=body.template,
        reasoning=body.reasoning,
        prompt_field="messages",
    )
    return await _answer(services, call, body, new)


async def completions(services: Services, call: Call) -> ASGIApp:
    """POST /v1/completions: what follows a text or token ids. Raises: Refusal when a field cannot be served."""
    if (elsewhere := await forwarded(services, call, call.identity.given_id)) is not None:
        return elsewhere
    body = await read(services, call, CompletionBody, "prompt")
    texts, ids = prompts_of(body.prompt)
    new = body.new_request(
        "completion",
        _name(services, call, body, "/v1/completions", "cmpl-"),
        call.origin,
        call.ignored,
        max_tokens=body.max_tokens if body.has_answer else 1,
        default_max_tokens=services.settings.default_max_tokens if body.max_tokens is None else NO_TOKEN_LIMIT,
        logprobs=_or_none(body.logprobs),
        **_prompt_logprobs(body, body.needed_prompt_logprobs),
        texts=texts,
        ids=ids,
        echo=bool(body.echo),
        has_answer=body.has_answer,
    )
    if body.best_of is not None:
        new = _with_best_of(new, body, body.best_of)
    return await _answer(services, call, body, new)


def _with_best_of(new: NewRequest, body: CompletionBody, best_of: int) -> NewRequest:
    """The request for `best_of` answers to each prompt, of which `n` are shown. Raises: Refusal."""
    if best_of < new.n or (body.stream and best_of > new.n):
        raise invalid("best_of", f"the same as n ({new.n})" if body.stream else f"at least n ({new.n})", best_of)
    if best_of == new.n:
        return new
    best = BestOf(n_shown=new.n, shows_logprobs=new.sampling.logprobs >= 0)
    sampling = msgspec.structs.replace(new.sampling, logprobs=max(new.sampling.logprobs, 0))
    return replace(new, n=best_of, n_field="best_of", best_of=best, sampling=sampling)


def _prompt_logprobs(body: ChatBody | CompletionBody, needed: int) -> dict[str, Any]:
    """The fields of `new_request` about prompts: how much is computed, and what is shown. Raises: Refusal."""
    if body.prompt_logprobs is not None and body.stream:
        raise invalid("prompt_logprobs", "none with stream: true", body.prompt_logprobs)
    return {
        "prompt_logprobs": needed,
        "shown_prompt_logprobs": _or_none(body.prompt_logprobs),
        "with_token_ids": bool(body.return_token_ids),
    }


def _or_none(wanted: int | None) -> int:
    """A number of most probable tokens as a `Sampling` has it."""
    return -1 if wanted is None else wanted


def _name(services: Services, call: Call, body: RequestFields, path: str, prefix: str) -> RequestName:
    is_streamed = bool(body.stream) and services.settings.journal_http_streams
    return name_of(call.identity, path, call.body, mint=lambda: services.owners.mint(prefix), is_streamed=is_streamed)


async def _answer(services: Services, call: Call, body: RequestFields, new: NewRequest) -> ASGIApp:
    if body.stream_options is not None and not body.stream:
        raise Refusal("invalid", "stream_options: expected stream: true beside it, got none", field="stream_options")
    return await generated(services, call, new)


ENDPOINTS = (
    Endpoint("POST", "/v1/chat/completions", chat, needs_open=True, body=ChatBody, generates=True),
    Endpoint("POST", "/v1/completions", completions, needs_open=True, body=CompletionBody, generates=True),
)
