"""Decides which requests are traced, by the samplers that OpenTelemetry names. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from messages.errors import ConfigError
from messages.wire.trace_context import TraceContext

SamplerName = Literal[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
]
_PARENT_BASED = "parentbased_"
_BITS = 64  # the low ones of a trace id are compared with the ratio, as OpenTelemetry's own SDKs do


@dataclass(frozen=True, slots=True)
class Sampler:
    """`bound`: traces whose id has a smaller number in its low 64 bits are recorded. `follows_parent`: a call that belongs to a
    trace already is recorded if its caller's span is."""

    bound: int
    follows_parent: bool

    def takes(self, trace_id: bytes, context: TraceContext | None) -> bool:
        """True if a request is traced. `context`: what its client said; None: nothing."""
        if context is not None and self.follows_parent:
            return context.is_sampled
        return int.from_bytes(trace_id[-_BITS // 8 :]) < self.bound


def sampler_of(name: str, argument: str) -> Sampler:
    """The sampler of this name. `argument`: its ratio, from 0 to 1; "": 1. Raises: ConfigError naming the variable."""
    if name not in get_args(SamplerName):
        raise ConfigError(f"OTEL_TRACES_SAMPLER: expected one of {', '.join(get_args(SamplerName))}, got {name!r}")
    root = name.removeprefix(_PARENT_BASED)
    ratio = {"always_on": 1.0, "always_off": 0.0}.get(root)
    if ratio is None:
        try:
            ratio = float(argument or "1")
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, got {argument!r}")
    return Sampler(round(ratio * 2**_BITS), name != root)
