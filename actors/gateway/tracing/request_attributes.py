"""The attributes of the span of a request: those of the semantic conventions for generative AI, and our own. Pure.

Nothing of a prompt or an answer is among them.
"""

from __future__ import annotations

from actors.gateway.requests.request_spec import Api
from actors.gateway.tracing.ended_request import EndedRequest
from actors.gateway.tracing.otlp import Attribute, attribute
from messages.generation.sampling import Sampling

_OPERATIONS: dict[Api, str] = {"completion": "text_completion", "generate": "text_completion", "zeromq": "generate_content"}
_CHAT = "chat"  # of all other APIs
_PROVIDER = attribute("gen_ai.provider.name", "tardigrade")
_SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")
_DEFAULTS = [(name, getattr(Sampling(), name)) for name in _SAMPLING]


def operation_of(api: Api) -> str:
    """The name of the operation, as the conventions have it."""
    return _OPERATIONS.get(api, _CHAT)


def request_attributes(one: EndedRequest) -> list[Attribute]:
    """The attributes of the span of a request."""
    found = [
        attribute("gen_ai.operation.name", operation_of(one.api)),
        _PROVIDER,
        attribute("gen_ai.request.model", one.model),
        attribute("gen_ai.response.model", one.model),
        attribute("gen_ai.response.id", one.answer_id),
        attribute("gen_ai.response.finish_reasons", one.reasons),
        attribute("gen_ai.usage.input_tokens", one.n_prompt),
        attribute("gen_ai.usage.output_tokens", one.n_generated),
        attribute("gen_ai.request.max_tokens", one.max_tokens),
        attribute("gen_ai.request.stream", not one.is_whole),
        attribute("tardigrade.request.id", one.request),
        attribute("tardigrade.api", one.api),
        attribute("tardigrade.gateway", one.gateway),
        attribute("tardigrade.ending", one.ending),
    ]
    if one.n_cached:
        found.append(attribute("gen_ai.usage.cache_read.input_tokens", one.n_cached))
    if one.first_token_s:
        found.append(attribute("gen_ai.response.time_to_first_chunk", one.first_token_s - one.began_s))
    if one.n > 1:
        found.append(attribute("gen_ai.request.choice.count", one.n))
    given = [(name, getattr(one.sampling, name), default) for name, default in _DEFAULTS]
    found += [attribute(f"gen_ai.request.{name}", float(value)) for name, value, default in given if value != default]
    return found + _ours(one)


def _ours(one: EndedRequest) -> list[Attribute]:
    """What only some requests have."""
    named = (
        ("tardigrade.tenant", one.tenant),
        ("tardigrade.cache", one.cache_status),
        ("tardigrade.x_request_id", one.x_request_id),
        ("tardigrade.scheduler", one.scheduler),
        ("error.type", "" if one.trouble is None else one.trouble.code),
    )
    found = [attribute(key, value) for key, value in named if value]
    if one.n_submissions > 1:
        found.append(attribute("tardigrade.submissions", one.n_submissions))
    if one.is_fallback:
        found.append(attribute("tardigrade.fallback", True))
    return found
