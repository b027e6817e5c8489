"""The attributes of the span of a request: those of the semantic conventions for generative AI, and our own. Pure.

Nothing of a prompt or an answer is among them.
"""

from __future__ import annotations

from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api, RequestSpec
from actors.gateway.requests.work_done import n_cached_of
from actors.gateway.tracing.attempts import AttemptNotes
from actors.gateway.tracing.otlp import Attribute, attribute
from messages.generation.sampling import Sampling
from messages.outcomes import EndReason

_OPERATIONS: dict[Api, str] = {"completion": "text_completion", "generate": "text_completion", "zeromq": "generate_content"}
_CHAT = "chat"  # of all other APIs
_PROVIDER = attribute("gen_ai.provider.name", "tardigrade")
_MOST_REASONS = 16
_DEFAULT = Sampling()


def operation_of(spec: RequestSpec) -> str:
    """The name of the operation, as the conventions have it."""
    return _OPERATIONS.get(spec.api, _CHAT)


def request_attributes(
    request: Request, ending: EndReason, model: str, gateway: str, tenant: str, notes: AttemptNotes
) -> list[Attribute]:
    """The attributes of the span of a request that is over. `model`: its name. `tenant`: "": there are none."""
    spec, n_cached = request.spec, n_cached_of(request)
    found = [
        attribute("gen_ai.operation.name", operation_of(spec)),
        _PROVIDER,
        attribute("gen_ai.request.model", model),
        attribute("gen_ai.response.model", model),
        attribute("gen_ai.response.id", spec.id_in_answers),
        attribute("gen_ai.response.finish_reasons", _reasons(request)),
        attribute("gen_ai.usage.input_tokens", sum(request.n_prompt)),
        attribute("gen_ai.usage.output_tokens", request.n_generated),
        attribute("gen_ai.request.max_tokens", spec.terms.max_tokens),
        attribute("gen_ai.request.stream", not spec.is_whole),
        attribute("tardigrade.request.id", spec.request),
        attribute("tardigrade.api", spec.api),
        attribute("tardigrade.gateway", gateway),
        attribute("tardigrade.ending", ending),
    ]
    if n_cached:
        found.append(attribute("gen_ai.usage.cache_read.input_tokens", n_cached))
    if request.first_token_s and not notes.resumed_s:
        found.append(attribute("gen_ai.response.time_to_first_chunk", request.first_token_s - request.began_s))
    return [*found, *_sampling(spec), *_ours(request, tenant, notes)]


def _reasons(request: Request) -> list[str]:
    return [one.ended.reason for one in request.sequences[:_MOST_REASONS] if one.ended is not None]


def _sampling(spec: RequestSpec) -> list[Attribute]:
    """What differs from the defaults of sampling, and the number of answers."""
    sampling, found = spec.sampling, list[Attribute]()
    if spec.n > 1:
        found.append(attribute("gen_ai.request.choice.count", spec.n))
    if sampling.temperature != _DEFAULT.temperature:
        found.append(attribute("gen_ai.request.temperature", float(sampling.temperature)))
    if sampling.top_p != _DEFAULT.top_p:
        found.append(attribute("gen_ai.request.top_p", float(sampling.top_p)))
    if sampling.top_k != _DEFAULT.top_k:
        found.append(attribute("gen_ai.request.top_k", float(sampling.top_k)))
    if sampling.frequency_penalty != _DEFAULT.frequency_penalty:
        found.append(attribute("gen_ai.request.frequency_penalty", float(sampling.frequency_penalty)))
    if sampling.presence_penalty != _DEFAULT.presence_penalty:
        found.append(attribute("gen_ai.request.presence_penalty", float(sampling.presence_penalty)))
    return found


def _ours(request: Request, tenant: str, notes: AttemptNotes) -> list[Attribute]:
    """What only some requests have."""
    spec, found = request.spec, list[Attribute]()
    n_submissions = max(one.n_submissions for one in request.sequences)
    given = {"tardigrade.tenant": tenant, "tardigrade.cache": spec.cache_status, "tardigrade.x_request_id": spec.correlation_id}
    found += [attribute(key, value) for key, value in given.items() if value]
    if n_submissions > 1:
        found.append(attribute("tardigrade.submissions", n_submissions))
    if notes.closed:
        found.append(attribute("tardigrade.scheduler", notes.closed[-1].scheduler))
    if notes.n_left_out:
        found.append(attribute("tardigrade.attempts.left_out", notes.n_left_out))
    if spec.fallback:
        found.append(attribute("tardigrade.fallback", True))
    code = next((one.ended.code for one in request.sequences if one.ended is not None and one.ended.is_failure), "")
    if code:
        found.append(attribute("error.type", code))
    return found
