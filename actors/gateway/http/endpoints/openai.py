"""OpenAI's endpoints that generate: chat completions and completions, streamed or whole."""

from __future__ import annotations

from starlette.types import ASGIApp

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.http.endpoint import Call, Endpoint, Services
from actors.gateway.http.openai_chunks import ChunkWriter, whole_body
from actors.gateway.http.schema import ChatBody, CompletionBody, RequestFields, prompts_of
from actors.gateway.http.sse import EventStream, WholeAnswer
from actors.gateway.requests.refusals import Refusal, invalid
from messages.generation import NO_TOKEN_LIMIT
from messages.ids import mint_request_id


async def chat(services: Services, call: Call) -> ASGIApp:
    """POST /v1/chat/completions."""
    body = await services.body_reader.read(call.body, ChatBody)
    longest = body.max_completion_tokens
    new = body.new_request(
        "chat",
        call.request_id or "chatcmpl-" + mint_request_id()[4:],
        call.trace_id,
        max_tokens=body.max_tokens if longest is None else longest,
        max_tokens_field="max_tokens" if longest is None else "max_completion_tokens",
        logprobs=body.wanted_logprobs,
        turns=turns_of(body.messages),
        prompt_field="messages",
    )
    return await _answer(services, body, new)


async def completions(services: Services, call: Call) -> ASGIApp:
    """POST /v1/completions."""
    body = await services.body_reader.read(call.body, CompletionBody, "prompt")
    texts, ids = prompts_of(body.prompt)
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise invalid("best_of", "the same as n", body.best_of)
    if body.echo and (body.logprobs is not None or texts is None):
        raise invalid("echo", "false with logprobs or token ids", True)
    new = body.new_request(
        "completion",
        call.request_id or "cmpl-" + mint_request_id()[4:],
        call.trace_id,
        max_tokens=body.max_tokens,
        default_max_tokens=services.settings.default_max_tokens if body.max_tokens is None else NO_TOKEN_LIMIT,
        logprobs=-1 if body.logprobs is None else body.logprobs,
        texts=texts,
        ids=ids,
        echo=texts or () if body.echo else (),
    )
    return await _answer(services, body, new)


async def _answer(services: Services, body: RequestFields, new: NewRequest) -> ASGIApp:
    if body.stream_options is not None and not body.stream:
        raise Refusal("invalid", "stream_options: expected stream: true beside it, got none", field="stream_options")
    request = await services.admission.admit(new)
    settings, desk = services.settings, services.desk
    name, model, longest_s = settings.model_name, services.model, settings.request_timeout_s
    if not body.stream:
        return WholeAnswer(desk, request, lambda: whole_body(request, name, model), longest_s)
    return EventStream(desk, request, ChunkWriter(request, name, model), longest_s, settings.sse_ping_s)


ENDPOINTS = (
    Endpoint("POST", "/v1/chat/completions", chat, needs_open=True),
    Endpoint("POST", "/v1/completions", completions, needs_open=True),
)
