"""Which requests are traced: the samplers that OpenTelemetry names."""

from __future__ import annotations

import random

import pytest

from actors.gateway.tracing.sampler import sampler_of
from messages.errors import ConfigError
from messages.wire.trace_context import TraceContext

SAMPLED, UNSAMPLED = TraceContext(parent_id=b"p" * 8, is_sampled=True), TraceContext(parent_id=b"p" * 8)


@pytest.mark.parametrize(
    ("name", "alone", "sampled", "unsampled"),
    [
        ("always_on", True, True, True),
        ("always_off", False, False, False),
        ("traceidratio", True, True, True),
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
        ("parentbased_traceidratio", True, True, False),
    ],
)
def test_a_sampler_follows_its_parent_or_not(name: str, alone: bool, sampled: bool, unsampled: bool) -> None:
    sampler = sampler_of(name, "")
    taken = [sampler.takes(b"t" * 16, context) for context in (None, SAMPLED, UNSAMPLED)]
    assert taken == [alone, sampled, unsampled]


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_a_ratio_is_that_of_the_traces_and_the_same_for_the_same_trace(ratio: float) -> None:
    dice, sampler = random.Random(7), sampler_of("traceidratio", str(ratio))
    ids = [dice.randbytes(16) for _ in range(20_000)]
    taken = [sampler.takes(trace_id, None) for trace_id in ids]
    assert sum(taken) / len(ids) == pytest.approx(ratio, abs=0.02)
    assert taken == [sampler_of("parentbased_traceidratio", str(ratio)).takes(trace_id, None) for trace_id in ids]


def test_a_smaller_ratio_takes_a_part_of_what_a_larger_one_takes() -> None:
    dice, small, large = random.Random(8), sampler_of("traceidratio", "0.1"), sampler_of("traceidratio", "0.4")
    ids = [dice.randbytes(16) for _ in range(2_000)]
    assert {i for i in ids if small.takes(i, None)} < {i for i in ids if large.takes(i, None)}


@pytest.mark.parametrize(
    ("name", "argument", "named"),
    [
        ("sometimes", "", "OTEL_TRACES_SAMPLER: "),
        ("traceidratio", "half", "OTEL_TRACES_SAMPLER_ARG: "),
        ("traceidratio", "1.5", "OTEL_TRACES_SAMPLER_ARG: "),
        ("parentbased_traceidratio", "nan", "OTEL_TRACES_SAMPLER_ARG: "),
    ],
)
def test_a_wrong_sampler_is_refused_by_name(name: str, argument: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}expected"):
        sampler_of(name, argument)
