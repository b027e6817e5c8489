"""What a level of degradation changes in a new request. Nothing changes once a request is accepted. Pure."""

from __future__ import annotations

import msgspec

from actors.gateway.requests.request_spec import BestOf, RequestSpec
from actors.gateway.settings import GatewaySettings
from messages.generation.replica_load import DegradationLevel

DRAFTS, ANSWERS, LENGTH = "drafts=off", "n", "max_tokens"


def measures_of(degraded: str) -> list[str]:
    """The names of the measures in `RequestSpec.degraded`, for metrics."""
    return [part.partition("=")[0] for part in degraded.split(", ")] if degraded else []


def degrade(spec: RequestSpec, level: DegradationLevel, settings: GatewaySettings) -> RequestSpec:
    """The request as it is accepted at this level. `degraded` says what was changed, as the header X-Degraded has it. Fewer
    answers and shorter ones only where the operator has set a limit."""
    if level is DegradationLevel.NORMAL:
        return spec
    told = [DRAFTS] if spec.terms.speculation else []
    most_n, most_tokens = settings.degraded_n, settings.degraded_max_tokens
    if level >= DegradationLevel.FEWER_ANSWERS and 0 < most_n < spec.n:
        spec = _with_fewer_answers(spec, most_n)
        told.append(f"{ANSWERS}={most_n}")
    if level >= DegradationLevel.SHORTER_ANSWERS and 0 < most_tokens < spec.terms.max_tokens:
        spec = msgspec.structs.replace(spec, terms=msgspec.structs.replace(spec.terms, max_tokens=most_tokens))
        told.append(f"{LENGTH}={most_tokens}")
    return msgspec.structs.replace(spec, degraded=", ".join(told)) if told else spec


def _with_fewer_answers(spec: RequestSpec, n: int) -> RequestSpec:
    """The request with `n` answers to each prompt. Of the best of several, at most as many are shown."""
    best = spec.best_of
    if best is not None:
        best = BestOf(n_shown=min(best.n_shown, n), shows_logprobs=best.shows_logprobs)
    return msgspec.structs.replace(spec, n=n, best_of=best)
