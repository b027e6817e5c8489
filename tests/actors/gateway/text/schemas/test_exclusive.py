"""A `oneOf` of definitions is followed where tags or types keep them apart, and refused elsewhere in words that help."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.gateway.text.grammars import GrammarError, compile_grammar
from messages.generation.grammar import Grammar, GrammarKind
from tests.support.answers.allowed_values import is_allowed


def tagged(tag: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": tag, **properties}, "required": ["kind", *properties]}


def union(*names: str) -> dict[str, Any]:
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in names]}


DEFINITIONS = {
    "Number": tagged({"const": "number"}, value={"type": "integer"}),
    "Minus": tagged({"enum": ["minus", "not"]}, of=union("Number", "Minus")),
    "NumberToo": tagged({"enum": ["other", "number"]}),
    "Untagged": {"type": "object", "properties": {"value": {"type": "integer"}}},
    "Text": {"type": "string"},
    "Real": {"type": "number"},
    "Whole": {"type": "integer"},
}
ONE = {"kind": "number", "value": 1}


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (("Number", "Minus"), ONE),
        (("Minus", "Number"), {"kind": "not", "of": {"kind": "minus", "of": ONE}}),
        (("Number", "Text"), ONE),
        (("Text", "Real", "Minus", "Number"), 2.5),
    ],
)
def test_tags_and_types_keep_definitions_apart(names: tuple[str, ...], value: Any) -> None:
    assert is_allowed({"$defs": DEFINITIONS, **union(*names)}, value)
    assert is_allowed({"$defs": DEFINITIONS, "type": "object", "properties": {"x": union(*names)}}, {"x": value})


def test_a_member_needs_its_own_tag() -> None:
    schema = {"$defs": DEFINITIONS, **union("Number", "Minus")}
    assert not is_allowed(schema, {"kind": "other", "value": 1})
    assert not is_allowed(schema, {"value": 1})


@pytest.mark.parametrize("names", [("Number", "NumberToo"), ("Number", "Untagged"), ("Real", "Whole"), ("Number", "Number")])
def test_definitions_that_a_value_may_match_both_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(GrammarError, match=r"oneOf: .*; anyOf takes any of them"):
        compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps({"$defs": DEFINITIONS, **union(*names)})))
