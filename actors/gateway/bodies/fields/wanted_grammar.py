"""The grammar that the fields of a request ask for, in the names of OpenAI (`response_format`) and of vLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from actors.gateway.requests.refusals import invalid
from messages.generation.grammar import Grammar, GrammarKind
from messages.wire.message import MAX_LONG_CHARACTERS

_KINDS = {
    "json": GrammarKind.JSON_SCHEMA,
    "regex": GrammarKind.REGEX,
    "choice": GrammarKind.CHOICE,
    "grammar": GrammarKind.LARK,
}
_OBJECT = {"type": "object"}
# vLLM's, beside the grammar, which ask for what is so here in any case
_AS_HERE = ("disable_any_whitespace", "disable_additional_properties", "disable_fallback")
_EBNF_RULE = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)  # no line of a Lark grammar begins so


def wanted_grammar(fields: Mapping[str, Any]) -> tuple[Grammar | None, str]:
    """(the grammar, the name of the field that asks for it), or (None, ""). fields: values by name; None is not given.

    Raises: Refusal naming the field when two fields ask, or one cannot be read.
    """
    asked: list[tuple[Grammar, str]] = []
    if (wanted := fields.get("response_format")) is not None and (grammar := _of_format(wanted)) is not None:
        asked.append((grammar, "response_format"))
    for key, value in (fields.get("structured_outputs") or {}).items():
        if key in _KINDS and value is not None:
            asked.append((_grammar(_KINDS[key], value, f"structured_outputs.{key}"), "structured_outputs"))
        elif key == "json_object" and value:
            asked.append((_grammar(GrammarKind.JSON_SCHEMA, _OBJECT, "structured_outputs"), "structured_outputs"))
        elif key not in (*_KINDS, *_AS_HERE) and value:
            raise invalid("structured_outputs", f"the keys json, json_object, {', '.join(list(_KINDS)[1:])}", key)
    for key, kind in _KINDS.items():
        if (value := fields.get(f"guided_{key}")) is not None:
            asked.append((_grammar(kind, value, f"guided_{key}"), f"guided_{key}"))
    if len(asked) > 1:
        names = " and ".join(name for _, name in asked)
        raise invalid(asked[1][1], "one grammar at most", names)
    return asked[0] if asked else (None, "")


def _of_format(wanted: Any) -> Grammar | None:
    """The grammar of a `response_format`; None for text. Raises: Refusal."""
    field = "response_format"
    if not isinstance(wanted, dict) or wanted.get("type") not in ("text", "json_object", "json_schema"):
        raise invalid(field, 'an object with the type "text", "json_object" or "json_schema"', wanted)
    if wanted["type"] == "text":
        return None
    if wanted["type"] == "json_object":
        return _grammar(GrammarKind.JSON_SCHEMA, _OBJECT, field)
    inside = wanted.get("json_schema")
    schema = inside.get("schema") if isinstance(inside, dict) else None
    if not isinstance(schema, dict):
        raise invalid(f"{field}.json_schema", 'an object with a "schema"', inside)
    return _grammar(GrammarKind.JSON_SCHEMA, schema, f"{field}.json_schema.schema")


def _grammar(kind: GrammarKind, value: Any, field: str) -> Grammar:
    is_text = isinstance(value, str) and kind is not GrammarKind.CHOICE
    if kind in (GrammarKind.REGEX, GrammarKind.LARK) and not is_text:
        raise invalid(field, "a text", value)
    if kind is GrammarKind.JSON_SCHEMA and not is_text and not isinstance(value, dict):
        raise invalid(field, "a JSON schema", value)
    if kind is GrammarKind.CHOICE and not (isinstance(value, list) and value and all(isinstance(one, str) for one in value)):
        raise invalid(field, "a list of texts, not empty", value)
    text = str(value) if is_text else json.dumps(value)
    if kind is GrammarKind.LARK and _EBNF_RULE.search(text[:MAX_LONG_CHARACTERS]):
        raise invalid(field, 'a Lark grammar, whose rules are written like start: "yes" | "no"', value)
    if len(text) > MAX_LONG_CHARACTERS:
        raise invalid(field, f"at most {MAX_LONG_CHARACTERS} characters", len(text))
    return Grammar(kind=kind, text=text)
