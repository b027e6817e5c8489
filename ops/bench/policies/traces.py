"""The traces: when requests arrive, what they ask for, of which caller. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from messages.generation.terms import Terms
from ops.bench.cliffs.workloads import TimedRequest
from supervisor.bench.statistics import poisson_arrivals

LIGHT_FROM_S = 5.0  # when the second caller begins
_TENANTS_S = 35.0
_BACKLOG = 256  # requests: as many as there are slots
_DEADLINES_S = 60.0
_BURST_EVERY_S, _BURST_PART = 20.0, 0.45  # long requests come in bursts, which take so much of the load
_N_HIGH, _APART_S = 100, 0.6  # requests of high priority


@dataclass(frozen=True)
class AskedRequest(TimedRequest):
    """A request with the terms that policies look at."""

    terms: Terms = field(default_factory=Terms)

    def whole_terms(self) -> Terms:
        """Its terms with its length."""
        names = ("priority", "caller", "weight", "ttft_ms", "deadline_ms")
        given = {name: getattr(self.terms, name) for name in names}
        return Terms(max_tokens=self.n_tokens, speculation=False, **given)


def two_tenants(weight: float, rng: random.Random, per_s: float = 75.0) -> list[AskedRequest]:
    """One caller asks for ten times as much as the other, which alone asks for more than its share. weight: of the second
    caller, which begins later; the first has 1. It comes with a backlog: before it has asked for as many sequences as its share
    of the slots is, it gets all that it asks for, and that is less than its share whatever the policy does."""
    heavy = _stream(10 * per_s, 0.0, _TENANTS_S, rng, Terms(caller=b"heavy"))
    terms = Terms(caller=b"light", weight=weight)
    light = [AskedRequest(LIGHT_FROM_S, 256, rng.randint(64, 384), terms) for _ in range(_BACKLOG)]
    light += _stream(per_s, LIGHT_FROM_S, _TENANTS_S, rng, terms)
    return sorted([*heavy, *light], key=lambda one: one.at_s)


def many_tenants(n_callers: int, per_s: float, seconds: float, rng: random.Random) -> list[AskedRequest]:
    """So many callers of random weights, which ask for the same."""
    callers = [Terms(caller=index.to_bytes(8), weight=rng.choice((1.0, 2.0, 4.0))) for index in range(n_callers)]
    times = _until(poisson_arrivals(per_s, rng), seconds)
    return [AskedRequest(at_s, 256, rng.randint(64, 384), rng.choice(callers)) for at_s in times]


def deadlines(per_s: float, rng: random.Random) -> list[AskedRequest]:
    """Short requests with near deadlines, and bursts of long ones that have a minute. per_s: of all requests, on average."""
    short = [
        AskedRequest(at_s, 256, n_tokens, Terms(ttft_ms=1000.0, deadline_ms=1000.0 + 40.0 * n_tokens))
        for at_s in _until(poisson_arrivals(per_s * (1.0 - _BURST_PART), rng), _DEADLINES_S)
        for n_tokens in (rng.randint(32, 128),)
    ]
    n_burst = int(per_s * _BURST_PART * _BURST_EVERY_S)
    bursts = [
        AskedRequest(at_s, 1024, rng.randint(256, 768), Terms(deadline_ms=60_000.0))
        for at_s in _steps(_BURST_EVERY_S, _DEADLINES_S)
        for _ in range(n_burst)
    ]
    return sorted([*short, *bursts], key=lambda one: one.at_s)


def priorities(n_prompt: int, n_low: int, rng: random.Random) -> list[AskedRequest]:
    """High-priority requests, one after the other, while `n_low` others of the lowest priority want to run."""
    low = [AskedRequest(0.0, 256, rng.randint(200, 600), Terms(priority=100)) for _ in range(n_low)]
    times = [5.0 + index * _APART_S + rng.random() * _APART_S / 2 for index in range(_N_HIGH)]
    high = [AskedRequest(at_s, n_prompt, 8, Terms(priority=0)) for at_s in times]
    return sorted([*low, *high], key=lambda one: one.at_s)


TENANT_WEIGHTS: Mapping[str, float] = {"1 : 1": 1.0, "1 : 3": 3.0}


def _stream(per_s: float, begin_s: float, end_s: float, rng: random.Random, terms: Terms) -> list[AskedRequest]:
    times = _until((begin_s + at_s for at_s in poisson_arrivals(per_s, rng)), end_s)
    return [AskedRequest(at_s, 256, rng.randint(64, 384), terms) for at_s in times]


def _until(times_s: Iterator[float], end_s: float) -> Iterator[float]:
    for at_s in times_s:
        if at_s >= end_s:
            return
        yield at_s


def _steps(every_s: float, end_s: float) -> Iterator[float]:
    at_s = every_s / 2
    while at_s < end_s:
        yield at_s
        at_s += every_s
