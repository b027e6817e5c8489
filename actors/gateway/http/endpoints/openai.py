"""OpenAI's endpoints that generate: chat completions and completions, streamed or whole."""

from __future__ import annotations

from starlette.types import ASGIApp

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.bodies.openai_requests import chat_request, completion_request
from actors.gateway.bodies.request_name import RequestName
from actors.gateway.bodies.schema import ChatBody, CompletionBody, RequestFields
from actors.gateway.http.endpoint import Call, Endpoint, Services, forwarded, read
from actors.gateway.http.endpoints.streams import generated
from actors.gateway.http.request_identity import name_of
from actors.gateway.requests.refusals import Refusal, invalid


async def chat(services: Services, call: Call) -> ASGIApp:
    """POST /v1/chat/completions: the answer to a conversation."""
    if (elsewhere := await forwarded(services, call, call.identity.key)) is not None:
        return elsewhere
    body = await read(services, call, ChatBody)
    _check_prompt_logprobs(body)
    name = _name(services, call, body, "/v1/chat/completions", "chatcmpl-")
    return await _answer(services, call, body, chat_request(body, "chat", name, call.origin, call.ignored))


async def completions(services: Services, call: Call) -> ASGIApp:
    """POST /v1/completions: what follows a text or token ids. Raises: Refusal when a field cannot be served."""
    if (elsewhere := await forwarded(services, call, call.identity.key)) is not None:
        return elsewhere
    body = await read(services, call, CompletionBody, "prompt")
    _check_prompt_logprobs(body)
    name, longest = _name(services, call, body, "/v1/completions", "cmpl-"), services.settings.default_max_tokens
    new = completion_request(body, "completion", name, call.origin, call.ignored, default_max_tokens=longest)
    return await _answer(services, call, body, new)


def _check_prompt_logprobs(body: ChatBody | CompletionBody) -> None:
    """Check the prompt's log probabilities. Raises: Refusal for a stream, whose events do not have them."""
    if body.prompt_logprobs is not None and body.stream:
        raise invalid("prompt_logprobs", "none with stream: true", body.prompt_logprobs)


def _name(services: Services, call: Call, body: RequestFields, path: str, prefix: str) -> RequestName:
    is_streamed = bool(body.stream) and services.settings.journal_http_streams
    return name_of(call.identity, path, call.body, prefix=prefix, mint=services.owners.mint, is_streamed=is_streamed)


async def _answer(services: Services, call: Call, body: RequestFields, new: NewRequest) -> ASGIApp:
    if body.stream_options is not None and not body.stream:
        raise Refusal("invalid", "stream_options: expected stream: true beside it, got none", field="stream_options")
    return await generated(services, call, new)


ENDPOINTS = (
    Endpoint("POST", "/v1/chat/completions", chat, needs_open=True, body=ChatBody, generates=True),
    Endpoint("POST", "/v1/completions", completions, needs_open=True, body=CompletionBody, generates=True),
)
