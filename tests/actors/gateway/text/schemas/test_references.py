"""References that lead nowhere, or to themselves, are refused before anything is computed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.gateway.text.grammars import GrammarError, compile_grammar
from actors.gateway.text.tools.forced import arguments_grammar
from actors.gateway.text.tools.offered import Tool
from messages.generation.grammar import Grammar, GrammarKind

Schema = dict[str, Any]


def compiled(schema: Schema) -> Grammar:
    """The grammar of a schema as a client sends it."""
    return compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema)))


def with_property(reference: str, **more: Any) -> Schema:
    """An object whose property `a` is the reference."""
    return {"type": "object", "properties": {"a": {"$ref": reference}}, **more}


@pytest.mark.parametrize("reference", ["#nowhere", "#/nowhere", "#/$defs/none", "other.json", "http://example.com/schema"])
def test_one_that_leads_nowhere_is_refused_wherever_it_stands(reference: str) -> None:
    for schema in ({"$ref": reference}, with_property(reference), {"type": "array", "items": {"$ref": reference}}):
        with pytest.raises(GrammarError, match=r"does not exist|is not present"):
            compiled(schema)
        tool = Tool(name="look", parameters=with_property(reference))
        with pytest.raises(GrammarError, match=r"does not exist|is not present"):
            compile_grammar(arguments_grammar(tool))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        with_property("#/properties/a"),
        with_property("#/$defs/x", **{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}}),
        with_property("#/$defs/x~1y", **{"$defs": {"x/y": {"$ref": "#/$defs/x%7E1y"}}}),
        {"anyOf": [{"$ref": "#/anyOf/0"}, {"type": "string"}]},
    ],
)
def test_one_that_leads_to_itself_is_refused(schema: Schema) -> None:
    with pytest.raises(GrammarError, match=r"one that nothing matches: the \$ref #.* leads to itself"):
        compiled(schema)


@pytest.mark.parametrize(
    "schema",
    [
        with_property("#"),  # a tree
        with_property("#/$defs/x", **{"$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}}}}),
        with_property("#/$defs/x", **{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"type": "integer"}}}),
        with_property("#named", **{"$defs": {"x": {"$anchor": "named", "type": "integer"}}}),
        {"type": "object", "properties": {"$ref": {"type": "string"}}},
    ],
)
def test_all_others_are_followed(schema: Schema) -> None:
    compiled(schema)
