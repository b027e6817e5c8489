"""TreeCommands and requests of the gateway for tests, with short prompts and plain settings."""

from __future__ import annotations

import numpy as np

from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.text.detokenizer import NumberText
from messages.generation.replica_load import DegradationLevel, ReplicaLoad
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms


def spec_of(n: int = 1, stop: list[str] | None = None, logprobs: int = -1, max_tokens: int = 1000) -> RequestSpec:
    """The specification of a request for `n` sequences after the prompt [1, 2]; `logprobs` -1: none."""
    return RequestSpec(
        request="r",
        api="generate",
        created_s=0.0,
        prompts=[np.array([1, 2], "<i4").tobytes()],
        sampling=Sampling(logprobs=logprobs),
        terms=Terms(max_tokens=max_tokens, stop=stop or []),
        n=n,
    )


def request_of(spec: RequestSpec) -> Request:
    """The request of an order, with the text of numbers."""
    return Request(7, spec, lambda prompt: NumberText(), 0.0)


def load_of(number: int = 1, waiting_tokens: int = 0, rate: float = 100.0, level: int = 0) -> ReplicaLoad:
    """A report of a replica's load: what waits, how many tokens are computed in a second, and the level."""
    return ReplicaLoad(
        number=number, waiting=1, running=1, waiting_tokens=waiting_tokens, running_tokens=0, pages_used=0, pages=1,
        prefill_rate=rate, decode_rate=0.0, level=DegradationLevel(level),
    )  # fmt: skip
