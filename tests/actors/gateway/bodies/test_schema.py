"""What a body asks of sampling, and what becomes of it."""

from __future__ import annotations

import json

import msgspec

from actors.gateway.bodies.schema import ChatBody, read_body
from messages.generation.examples import example_of
from messages.generation.sampling import Sampling

HI = {"messages": [{"role": "user", "content": "hi"}]}
ASKED = msgspec.structs.replace(example_of(Sampling), seed=7, frequency_penalty=-0.5, logprobs=2)


def sampling_of(**fields: object) -> Sampling:
    return read_body(json.dumps(HI | fields).encode(), ChatBody).sampling("an id", logprobs=2)


def test_every_field_of_sampling_is_taken() -> None:
    names = [name for name in Sampling.__struct_fields__ if name != "logprobs"]
    assert all(getattr(ASKED, name) != getattr(Sampling(), name) for name in names)
    assert sampling_of(**{name: getattr(ASKED, name) for name in names}) == ASKED


def test_what_is_left_out_or_null_has_the_default() -> None:
    names = [name for name in Sampling.__struct_fields__ if name not in ("logprobs", "seed")]
    for given in (sampling_of(), sampling_of(**dict.fromkeys(names))):
        assert all(getattr(given, name) == getattr(Sampling(), name) for name in names)


def test_top_k_of_minus_one_is_off_and_any_integer_is_a_seed() -> None:
    given = sampling_of(top_k=-1, seed=-1)
    assert (given.top_k, given.seed) == (0, 2**63 - 1)
