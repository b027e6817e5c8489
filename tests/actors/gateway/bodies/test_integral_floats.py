"""Integers that a client writes as floats."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from actors.gateway.bodies.schema import ChatBody, CompletionBody, GenerateBody, read_body
from actors.gateway.http.endpoints.ollama import OllamaChatBody
from actors.gateway.requests.refusals import Refusal

HI = {"messages": [{"role": "user", "content": "hi"}]}


def refused(kind: type[msgspec.Struct], fields: dict[str, Any]) -> str:
    with pytest.raises(Refusal) as caught:
        read_body(json.dumps(fields).encode(), kind)
    return caught.value.detail


def test_four_point_zero_is_four_in_every_field_of_a_body() -> None:
    floats = {"max_tokens": 4.0, "n": 1.0, "seed": -7.0, "top_k": 20.0, "min_tokens": 2.0, "priority": -3.0, "temperature": 1.0}
    body = read_body(json.dumps(HI | floats).encode(), ChatBody)
    assert (body.max_tokens, body.n, body.seed, body.top_k, body.min_tokens, body.priority) == (4, 1, -7, 20, 2, -3)  # pyright: ignore[reportAttributeAccessIssue]
    assert all(isinstance(getattr(body, name), int) for name in floats if name != "temperature")
    assert isinstance(body.temperature, float)  # pyright: ignore[reportAttributeAccessIssue]


def test_it_is_four_in_an_object_of_a_body() -> None:
    fields = {"model": "m", **HI, "options": {"num_predict": 4.0, "temperature": 0.5, "seed": 9.0}}
    options = read_body(json.dumps(fields).encode(), OllamaChatBody).options
    assert options is not None
    assert (options.num_predict, options.temperature, options.seed) == (4, 0.5, 9)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (ChatBody, HI | {"max_tokens": 4.5}, "max_tokens: expected an integer, got 4.5"),
        (ChatBody, HI | {"max_tokens": 4.0, "n": 1.5}, "n: expected an integer, got 1.5"),
        (ChatBody, HI | {"seed": 1e300}, "seed: expected an integer, got 1e+300"),
        (ChatBody, HI | {"top_k": -2.0}, "top_k: expected an integer >= -1, got -2"),
        (ChatBody, HI | {"max_tokens": "4.0"}, 'max_tokens: expected an integer, got "4.0"'),
        (CompletionBody, {"prompt": "a", "best_of": 2.5}, "best_of: expected an integer, got 2.5"),
        (GenerateBody, {"tokens": [1, 2.0]}, "tokens[1]: expected an integer, got 2.0"),
    ],
)
def test_other_floats_and_those_in_lists_are_refused(kind: type[msgspec.Struct], fields: dict[str, Any], said: str) -> None:
    assert refused(kind, fields) == said
