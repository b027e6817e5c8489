"""What a level changes in a new request, and that it is told."""

from __future__ import annotations

import msgspec
import pytest

from actors.gateway.overload.measures import degrade, measures_of
from actors.gateway.requests.request_spec import BestOf
from actors.gateway.settings import GatewaySettings
from messages.generation.replica_load import DegradationLevel
from tests.support.gateway.request_examples import spec_of

_LIMITS = GatewaySettings(degraded_n=2, degraded_max_tokens=50)


@pytest.mark.parametrize(
    ("level", "settings", "n", "max_tokens", "told"),
    [
        (0, _LIMITS, 4, 1000, ""),
        (1, _LIMITS, 4, 1000, "drafts=off"),
        (2, _LIMITS, 2, 1000, "drafts=off, n=2"),
        (3, _LIMITS, 2, 50, "drafts=off, n=2, max_tokens=50"),
        (4, _LIMITS, 2, 50, "drafts=off, n=2, max_tokens=50"),
        (4, GatewaySettings(), 4, 1000, "drafts=off"),
        (4, GatewaySettings(degraded_n=4, degraded_max_tokens=1000), 4, 1000, "drafts=off"),
    ],
)
def test_levels_and_the_word_of_the_operator(level: int, settings: GatewaySettings, n: int, max_tokens: int, told: str) -> None:
    spec = degrade(spec_of(n=4), DegradationLevel(level), settings)
    assert (spec.n, spec.terms.max_tokens, spec.degraded) == (n, max_tokens, told)
    assert (spec.prompts, spec.sampling) == (spec_of().prompts, spec_of().sampling)


def test_what_must_stay_stays() -> None:
    level, spec = DegradationLevel.SHEDDING, spec_of(n=4)
    best = degrade(msgspec.structs.replace(spec, best_of=BestOf(n_shown=3, shows_logprobs=True)), level, _LIMITS)
    assert best.best_of == BestOf(n_shown=2, shows_logprobs=True)
    assert degrade(msgspec.structs.replace(spec, api="zeromq"), level, _LIMITS).n == 2, "Accepted says how many come"
    terms = msgspec.structs.replace(spec.terms, speculation=False)
    assert degrade(msgspec.structs.replace(spec, terms=terms, n=1), level, _LIMITS).degraded == "max_tokens=50"


def test_the_names_of_measures() -> None:
    assert measures_of("drafts=off, n=2, max_tokens=50") == ["drafts", "n", "max_tokens"]
    assert measures_of("") == []
