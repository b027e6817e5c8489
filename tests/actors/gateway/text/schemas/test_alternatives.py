"""A `oneOf` is followed where an answer matches one of its schemas as they were sent, and refused where it may match two."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from actors.gateway.text.grammars import GrammarError, compile_grammar
from messages.generation.grammar import Grammar, GrammarKind
from tests.support.answers.allowed_values import is_allowed

TEXT = {"type": "string"}
A: dict[str, Any] = {"type": "object", "properties": {"kind": {"const": "a"}, "x": TEXT}, "required": ["kind"]}
B: dict[str, Any] = {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}
X: dict[str, Any] = {"type": "object", "properties": {"x": TEXT}, "required": ["x"]}
Y: dict[str, Any] = {"type": "object", "properties": {"y": TEXT}, "required": ["y"]}
MAY_BE_Y: dict[str, Any] = {"type": "object", "properties": {"y": TEXT}}
CLOSED_X = X | {"additionalProperties": False}


@pytest.mark.parametrize(
    ("one", "other", "value"), [(A, B, {"kind": "a"}), (X, Y, {"x": ""}), (X, {"type": "null"}, {"x": ""})]
)
def test_schemas_that_exclude_each_other_are_followed(one: Any, other: Any, value: Any) -> None:
    for schema in ({"oneOf": [one, other]}, {"oneOf": [other, one]}):
        assert is_allowed(schema, value)
        jsonschema.validate(value, schema)
        assert is_allowed({"type": "array", "items": schema}, [value])


@pytest.mark.parametrize("one", [X, CLOSED_X])
def test_schemas_that_an_answer_may_match_both_are_refused(one: Any) -> None:
    one_of = {"oneOf": [one, MAY_BE_Y]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"x": ""}, one_of)
    for schema in (one_of, {"type": "object", "properties": {"a": {"type": "array", "items": one_of}}}, {"oneOf": [one_of]}):
        with pytest.raises(GrammarError, match="oneOf"):
            compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema)))
