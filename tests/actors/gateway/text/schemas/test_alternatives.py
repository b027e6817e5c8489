"""A `oneOf` is followed where an answer matches one of its schemas as they were sent, and refused where it may match two."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher

from actors.gateway.text.grammars import GrammarError, compile_grammar
from actors.gateway.text.schemas import alternatives
from actors.gateway.text.schemas.alternatives import has_overlap
from actors.gateway.text.schemas.narrowed import narrowed
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


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_an_overlap_is_found_between_any_two_places(n: int) -> None:
    apart = [{"type": "object", "properties": {"kind": {"const": str(at)}}, "required": ["kind"]} for at in range(n)]
    assert not has_overlap({"oneOf": apart}, narrowed({"oneOf": apart}))
    for first, second in permutations(range(n), 2):
        schemas: list[Any] = list(apart)
        schemas[first], schemas[second] = X, MAY_BE_Y
        assert has_overlap({"oneOf": schemas}, narrowed({"oneOf": schemas}))


def test_many_schemas_take_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    compiled = LLMatcher.grammar_from_json_schema

    def compile_schema(text: str) -> str:
        asked.append(text)
        return compiled(text)

    monkeypatch.setattr(alternatives.LLMatcher, "grammar_from_json_schema", staticmethod(compile_schema))
    kinds = [{"const": str(at)} for at in range(64)]
    schema = {"oneOf": [{"type": "object", "properties": {"kind": kind}, "required": ["kind"]} for kind in kinds]}
    assert not has_overlap(schema, narrowed(schema))
    assert len(asked) == 2 * 6
