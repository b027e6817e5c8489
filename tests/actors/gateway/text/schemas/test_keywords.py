"""Every keyword of JSON Schema 2020-12, wherever it stands: followed, or refused by its name; or it says nothing of values."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import jsonschema
import pytest
from jsonschema_specifications import REGISTRY

from actors.gateway.text.grammars import GrammarError, compile_grammar
from messages.generation.grammar import Grammar, GrammarKind
from tests.support.answers.allowed_values import is_allowed, written_by_chance
from tests.support.answers.any_schemas import any_schema
from tests.support.depth import DEPTH

pytestmark = pytest.mark.slow

Schema = dict[str, Any]
_VOCABULARIES = ("core", "applicator", "unevaluated", "validation", "format-annotation", "content", "meta-data")
_TWO: Schema = {"a": {"type": "integer"}, "b": {"type": "integer"}}


class Followed(NamedTuple):
    """A keyword that answers follow, in a schema with a value that matches it and one that does not."""

    keyword: str
    schema: Schema
    right: Any
    wrong: Any


FOLLOWED = [
    Followed("type", {"type": ["string", "null"]}, None, 1),
    Followed("const", {"const": {"a": [1]}}, {"a": [1]}, {"a": [2]}),
    Followed("enum", {"enum": [1, "a", None]}, "a", "b"),
    Followed("multipleOf", {"type": "number", "multipleOf": 0.5}, 1.5, 1.3),
    Followed("maximum", {"type": "integer", "maximum": 5}, 5, 6),
    Followed("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 5}, 4.9, 5),
    Followed("minimum", {"type": "number", "minimum": 5}, 5, 4.9),
    Followed("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 5}, 6, 5),
    Followed("maxLength", {"type": "string", "maxLength": 2}, "ab", "abc"),
    Followed("minLength", {"type": "string", "minLength": 2}, "ab", "a"),
    Followed("pattern", {"type": "string", "pattern": "^a+$"}, "aa", "b"),
    Followed("maxItems", {"type": "array", "maxItems": 1}, [1], [1, 2]),
    Followed("minItems", {"type": "array", "minItems": 1}, [1], []),
    Followed("prefixItems", {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], ["a"]),
    Followed("items", {"type": "array", "items": {"type": "integer"}}, [1, 2], ["a"]),
    Followed("required", {"type": "object", "required": ["a"]}, {"a": 1}, {}),
    Followed("properties", {"type": "object", "properties": _TWO}, {"a": 1}, {"a": "x"}),
    Followed("patternProperties", {"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, {"ab": 1}, {"ab": "x"}),
    Followed("additionalProperties", {"type": "object", "additionalProperties": {"type": "integer"}}, {"z": 1}, {"z": "x"}),
    Followed("propertyNames", {"type": "object", "propertyNames": {"pattern": "^a"}}, {"ab": 1}, {"b": 1}),
    Followed("minProperties", {"type": "object", "minProperties": 1}, {"a": 1}, {}),
    Followed("maxProperties", {"type": "object", "maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}),
    Followed("allOf", {"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3, 2),
    Followed("anyOf", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3, "a"),
    Followed("oneOf", {"oneOf": [{"type": "integer"}, {"type": "null"}]}, None, "a"),
    Followed("format", {"type": "string", "format": "date"}, "2020-01-02", "yesterday"),
    Followed("$ref", {"$defs": {"x": {"type": "integer"}}, "$ref": "#/$defs/x"}, 1, "a"),
    Followed("$defs", {"$defs": {"x": {"type": "integer"}}, "$ref": "#/$defs/x", "minimum": 3}, 3, 2),
    Followed("$anchor", {"$defs": {"x": {"$anchor": "y", "type": "integer"}}, "$ref": "#y"}, 1, "a"),
]
REFUSED: dict[str, Schema] = {
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "contains": {"type": "array", "contains": {"const": 1}},
    "minContains": {"type": "array", "minContains": 2},
    "maxContains": {"type": "array", "maxContains": 2},
    "dependentRequired": {"type": "object", "properties": _TWO, "dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"type": "object", "properties": _TWO, "dependentSchemas": {"a": {"required": ["b"]}}},
    "not": {"type": "integer", "not": {"const": 3}},
    "if": {"type": "integer", "if": {"minimum": 0}},
    "then": {"type": "integer", "then": {"minimum": 0}},
    "else": {"type": "integer", "else": {"minimum": 0}},
    "unevaluatedItems": {"type": "array", "prefixItems": [{}], "unevaluatedItems": False},
    "unevaluatedProperties": {"type": "object", "properties": _TWO, "unevaluatedProperties": False},
    "$dynamicRef": {"type": "object", "properties": {"a": {"$dynamicRef": "#y"}}},
    "$dynamicAnchor": {"type": "integer", "$dynamicAnchor": "y"},
}
SAYS_NOTHING: dict[str, Any] = {
    "$comment": "x", "title": "x", "description": "x", "default": 1, "examples": [1], "deprecated": True, "readOnly": True,
    "writeOnly": True, "contentEncoding": "base64", "contentMediaType": "application/json", "contentSchema": {"type": "string"},
    "$id": "http://example.com/s", "$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": {},
}  # fmt: skip
# what OpenAI documents for `strict: true`, beside `additionalProperties: false` and all properties required
OF_STRICT = {
    "string": ("pattern", "format"),
    "number": ("multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("properties", "required", "additionalProperties"),
    "": ("type", "enum", "const", "anyOf", "$defs", "$ref"),
}
FORMATS_OF_STRICT = {
    "date-time": "2020-01-02T03:04:05Z", "time": "03:04:05Z", "date": "2020-01-02", "duration": "P1D", "email": "a@example.com",
    "hostname": "example.com", "ipv4": "127.0.0.1", "ipv6": "::1", "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip

PLACES: dict[str, tuple[Callable[[Schema], Schema], Callable[[Any], Any]]] = {
    "root": (lambda one: one, lambda value: value),
    "property": (lambda one: {"type": "object", "properties": {"p": one}, "required": ["p"]}, lambda value: {"p": value}),
    "item": (lambda one: {"type": "array", "items": one}, lambda value: [value]),
    "first item": (lambda one: {"type": "array", "prefixItems": [one], "items": False}, lambda value: [value]),
    "unnamed": (lambda one: {"type": "object", "additionalProperties": one}, lambda value: {"p": value}),
    "pattern": (lambda one: {"type": "object", "patternProperties": {"^p": one}, "required": ["p"]}, lambda one: {"p": one}),
    "choice": (lambda one: {"anyOf": [one, {"const": "other"}]}, lambda value: value),
    "together": (lambda one: {"allOf": [one, {"title": "x"}]}, lambda value: value),
    "reference": (lambda one: {"$defs": {"q": one}, "type": "array", "items": {"$ref": "#/$defs/q"}}, lambda value: [value]),
}  # fmt: skip
everywhere = pytest.mark.parametrize("place", list(PLACES))


def placed(place: str, schema: Schema) -> Schema:
    """The schema at a place of a greater one, which gets its definitions."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer = PLACES[place][0](inner)
    return outer | {"$defs": outer.get("$defs", {}) | schema["$defs"]} if "$defs" in schema else outer


def test_every_keyword_of_the_specification_is_here() -> None:
    named: set[str] = set()
    for vocabulary in _VOCABULARIES:
        found: Any = REGISTRY.contents(f"https://json-schema.org/draft/2020-12/meta/{vocabulary}")
        named |= set(found["properties"])
    assert {one.keyword for one in FOLLOWED} | set(REFUSED) | set(SAYS_NOTHING) == named


@everywhere
@pytest.mark.parametrize("one", FOLLOWED, ids=lambda one: one.keyword)
def test_a_keyword_is_followed(one: Followed, place: str) -> None:
    schema, value = placed(place, one.schema), PLACES[place][1]
    assert is_allowed(schema, value(one.right))
    assert not is_allowed(schema, value(one.wrong))


@everywhere
@pytest.mark.parametrize("keyword", list(REFUSED))
def test_a_keyword_is_refused_by_its_name(keyword: str, place: str) -> None:
    text = json.dumps(placed(place, REFUSED[keyword]))
    with pytest.raises(GrammarError, match=f'"{keyword}"'.replace("$", r"\$")):
        compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=text))


@pytest.mark.parametrize("keyword", list(SAYS_NOTHING))
def test_a_keyword_that_says_nothing_of_values_is_passed_over(keyword: str) -> None:
    schema = {"type": "integer", keyword: SAYS_NOTHING[keyword]}
    assert is_allowed(schema, 1)
    assert not is_allowed(schema, "a")


def test_all_that_openai_takes_with_strict_is_followed() -> None:
    assert {keyword for keywords in OF_STRICT.values() for keyword in keywords} <= {one.keyword for one in FOLLOWED}
    for name, text in FORMATS_OF_STRICT.items():
        assert is_allowed({"type": "string", "format": name}, text), name
        assert not is_allowed({"type": "string", "format": name}, "~"), name


@pytest.mark.parametrize(
    ("schema", "is_refused"),
    [
        ({"type": "object", "minProperties": 2}, True),
        ({"type": "array", "items": {"type": "object", "patternProperties": {"^a": {}}, "minProperties": 2}}, True),
        ({"type": "object", "properties": _TWO, "required": ["a", "b"], "minProperties": 4}, True),
        ({"type": "object", "properties": _TWO, "required": ["a", "b"], "minProperties": 3}, False),
        ({"type": "object", "properties": _TWO, "required": ["a"], "additionalProperties": False, "minProperties": 2}, False),
        ({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 1}, False),
    ],
)
def test_a_number_of_properties_that_one_name_could_meet_is_refused(schema: Schema, is_refused: bool) -> None:
    grammar = Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema))
    if is_refused:
        with pytest.raises(GrammarError, match=r"^minProperties"):
            compile_grammar(grammar)
    else:
        compile_grammar(grammar)


@pytest.mark.parametrize("first", range(0, 300 * DEPTH, 100))
def test_what_is_not_refused_is_followed(first: int) -> None:
    """Keywords by chance, several in one schema: an answer by chance matches all of them."""
    n_taken = 0
    for seed in range(first, first + 100):
        schema = any_schema(seed)
        try:
            grammar = compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema)))
        except GrammarError:
            continue
        n_taken += 1
        rng, validator = Random(seed), jsonschema.Draft202012Validator(schema)
        for _ in range(4):
            if (text := written_by_chance(grammar.text, rng)) is not None:
                assert validator.is_valid(json.loads(text)), (seed, schema, text)
    assert n_taken > 20
