"""Schemas beside tools are checked as strictly as alone; those of tools that are not strict may have any keyword."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.gateway.admission.tool_grammar import check_schemas, schema_at_fault
from actors.gateway.text.grammars import GrammarError
from actors.gateway.text.tools.offered import OfferedTools, Tool
from messages.generation.grammar import Grammar, GrammarKind

# the first is the library's own to refuse; the others are found before it
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"properties": {"tags": {"type": "array", "uniqueItems": True}}}, "uniqueItems"),
    ({"properties": {"n": {"const": 123456789012345678}}}, "too many digits"),
    ({"patternProperties": {"^n": {"const": 123456789012345678}}}, "too many digits"),
    ({"additionalProperties": {"type": "integer"}, "minProperties": 2}, "minProperties"),
    ({"properties": {"tags": {"type": "array", "uniqueItems": True}}, "x-guidance": {"lenient": True}}, "uniqueItems"),
]


def offered(schema: dict[str, Any], *, is_strict: bool) -> OfferedTools:
    return OfferedTools((Tool("f", schema, is_strict=is_strict, schema_field="tools[0].function.parameters"),), ("f",))


@pytest.mark.parametrize(("schema", "reason"), REFUSED)
async def test_a_schema_that_must_hold_is_refused_with_its_reason(schema: dict[str, Any], reason: str) -> None:
    wanted = Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps({"type": "object", **schema}))
    plain = offered({"type": "object"}, is_strict=True)
    assert await schema_at_fault(plain) == ("", "")
    for grammar, tools in ((wanted, plain), (None, offered(schema, is_strict=True))):
        with pytest.raises(GrammarError, match=reason):
            await check_schemas(grammar, tools)
    field, why = await schema_at_fault(offered(schema, is_strict=True))
    assert field == "tools[0].function.parameters"
    assert reason in why


@pytest.mark.parametrize(("schema", "reason"), REFUSED)
async def test_a_tool_that_is_not_strict_may_have_any_keyword(schema: dict[str, Any], reason: str) -> None:
    tools = offered(schema, is_strict=False)
    await check_schemas(None, tools)
    assert await schema_at_fault(tools) == ("", ""), reason
    assert await schema_at_fault(offered({"properties": {"a": {"type": "objekt"}}}, is_strict=False)) != ("", "")
