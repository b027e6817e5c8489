"""Objects whose keys `propertyNames` describes are followed where other keywords say the same, and refused where none do."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from actors.gateway.text.grammars import GrammarError, compile_grammar
from messages.generation.grammar import Grammar, GrammarKind
from tests.support.answers.allowed_values import is_allowed

NUMBERS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}
LISTED = NUMBERS | {"propertyNames": {"type": "string", "enum": ["a", "b"]}}
COLOURS: dict[str, Any] = {"$defs": {"Colour": {"enum": ["a", "b"], "title": "Colour", "type": "string"}}}
VALUES: list[dict[str, Any]] = [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"c": 1}, {"a": "x"}, {"": 1}, {"abc": 1}, {"é": 1}]


@pytest.mark.parametrize(
    "schema",
    [
        NUMBERS | {"propertyNames": {"type": "string"}},
        NUMBERS | {"propertyNames": True},
        LISTED,
        LISTED | {"required": ["a"]},
        LISTED | {"properties": {"a": {"const": 1}}},
        {"type": "object", "propertyNames": {"const": "a"}},
        {**NUMBERS, "propertyNames": {"$ref": "#/$defs/Colour"}, **COLOURS},
        NUMBERS | {"propertyNames": {"type": "string", "pattern": "^[a-c]{1,3}$"}},
        NUMBERS | {"propertyNames": {"minLength": 1, "maxLength": 2}},
        {"type": "object", "properties": {"x": LISTED}, "required": ["x"]},
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": LISTED},
    ],
)
def test_the_grammar_takes_what_the_schema_takes(schema: dict[str, Any]) -> None:
    matches = jsonschema.Draft202012Validator(schema).is_valid
    values = [*VALUES, *({"x": value} for value in VALUES)]
    assert [value for value in values if is_allowed(schema, value)] == [value for value in values if matches(value)]


@pytest.mark.parametrize(
    "names",
    [
        {"type": "string", "format": "uuid"},
        {"minLength": 1, "pattern": "a"},
        {"$ref": "#/$defs/nowhere"},
        {"type": "integer"},
        {"not": {"const": "a"}},
        False,
    ],
)
def test_keys_that_cannot_be_said_otherwise_are_refused(names: Any) -> None:
    with pytest.raises(GrammarError, match="propertyNames"):
        compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(NUMBERS | {"propertyNames": names})))


@pytest.mark.parametrize("others", [{"properties": {"c": {}}}, {"patternProperties": {"^c": {}}}])
def test_keys_beside_others_are_refused(others: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="propertyNames"):
        compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(LISTED | others)))
