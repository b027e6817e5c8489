"""The three workloads: when each request arrives, how long its prompt is and how many tokens it asks for. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from supervisor.bench.statistics import poisson_arrivals

_DURATION_S = 20.0  # of the mixed workload
_SHORT_PER_S, _LONG_PER_S = 45.0, 2.0
_BURST_S = 4.0  # between the two bursts
_LEAST_PROMPT = 8  # tokens


@dataclass(frozen=True)
class TimedRequest:
    """One request: seconds from the start, tokens of its prompt, tokens to generate."""

    at_s: float
    n_prompt: int
    n_tokens: int


def long_prompt(scale: float, rng: random.Random) -> list[TimedRequest]:
    """One prompt of 100,000 tokens among thirty of 2,000 to 4,000, all at once; 300 tokens each."""
    lengths = [rng.randint(2000, 4000) for _ in range(30)]
    lengths.insert(10, 100_000)
    return [TimedRequest(0.0, _scaled(n, scale), _scaled(300, scale)) for n in lengths]


def mixed(scale: float, rng: random.Random) -> list[TimedRequest]:
    """Short requests (128 tokens in, 128 out) and prompts of 4,096 tokens (64 out), at random times: about 70 % of what one
    H200 can do with an 8B model. `scale` changes the rates, not the lengths."""
    kinds = ((_SHORT_PER_S, 128, 128), (_LONG_PER_S, 4096, 64))
    requests = [
        TimedRequest(at_s, n_prompt, n_tokens)
        for per_s, n_prompt, n_tokens in kinds
        for at_s in takewhile(lambda at_s: at_s < _DURATION_S, poisson_arrivals(per_s * scale, rng))
    ]
    return sorted(requests, key=lambda request: request.at_s)


def burst(scale: float, rng: random.Random) -> list[TimedRequest]:
    """300 prompts of 512 tokens at once, and 300 more after four seconds, when the first ones run; 200 to 400 tokens each."""
    n = max(int(300 * scale), 1)
    return [TimedRequest(at_s, 512, rng.randint(200, 400)) for at_s in (0.0, _BURST_S) for _ in range(n)]


WORKLOADS: Mapping[str, Callable[[float, random.Random], list[TimedRequest]]] = {
    "long-prompt": long_prompt,
    "mixed": mixed,
    "burst": burst,
}


def _scaled(n: int, scale: float) -> int:
    return max(int(n * scale), _LEAST_PROMPT)
