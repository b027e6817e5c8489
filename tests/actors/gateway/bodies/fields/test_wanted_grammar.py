"""The fields that ask for a grammar: OpenAI's and vLLM's names become one grammar, or a refusal that names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.gateway.bodies.fields.wanted_grammar import wanted_grammar
from actors.gateway.requests.refusals import Refusal
from messages.generation.grammar import Grammar, GrammarKind
from messages.wire.message import MAX_LONG_CHARACTERS

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
JSON = GrammarKind.JSON_SCHEMA


@pytest.mark.parametrize(
    ("fields", "kind", "text", "field"),
    [
        ({"response_format": {"type": "json_object"}}, JSON, '{"type": "object"}', "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}},
            JSON, json.dumps(SCHEMA), "response_format",
        ),
        ({"structured_outputs": {"json": SCHEMA}}, JSON, json.dumps(SCHEMA), "structured_outputs"),
        ({"structured_outputs": {"json_object": True}}, JSON, '{"type": "object"}', "structured_outputs"),
        ({"structured_outputs": {"regex": "a+", "choice": None}}, GrammarKind.REGEX, "a+", "structured_outputs"),
        (
            {"structured_outputs": {"regex": "a", "disable_any_whitespace": True, "disable_fallback": True,
                                    "disable_additional_properties": True, "whitespace_pattern": None}},
            GrammarKind.REGEX, "a", "structured_outputs",
        ),
        ({"guided_json": json.dumps(SCHEMA)}, JSON, json.dumps(SCHEMA), "guided_json"),
        ({"guided_regex": "a+"}, GrammarKind.REGEX, "a+", "guided_regex"),
        ({"guided_choice": ["yes", "no"]}, GrammarKind.CHOICE, '["yes", "no"]', "guided_choice"),
        ({"guided_grammar": 'start: "a"'}, GrammarKind.LARK, 'start: "a"', "guided_grammar"),
    ],
)  # fmt: skip
def test_every_way_to_ask(fields: dict[str, Any], kind: GrammarKind, text: str, field: str) -> None:
    assert wanted_grammar(fields) == (Grammar(kind=kind, text=text), field)


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}, {"structured_outputs": {}}])
def test_no_grammar(fields: dict[str, Any]) -> None:
    assert wanted_grammar(fields) == (None, "")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}, "response_format.json_schema"),
        ({"structured_outputs": {"regex": 7}}, "structured_outputs.regex"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs"),
        ({"guided_grammar": 'root ::= "yes" | "no"'}, "guided_grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_regex": "x" * (MAX_LONG_CHARACTERS + 1)}, "guided_regex"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Refusal) as caught:
        wanted_grammar(fields)
    assert caught.value.field == field
