"""Formats that programs name for themselves are passed over where they say nothing more, and refused elsewhere."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from pydantic import Base64Bytes, TypeAdapter

from actors.gateway.text.grammars import GrammarError, compile_grammar
from messages.generation.grammar import Grammar, GrammarKind
from tests.support.answers.allowed_values import is_allowed


@pytest.mark.parametrize("name", ["binary", "password", "path", "file-path", "directory-path"])
def test_a_format_of_any_text_says_nothing(name: str) -> None:
    assert is_allowed({"type": "string", "format": name}, "any text")


@pytest.mark.parametrize("rule", [{"pattern": "^ab"}, {"enum": ["abz"]}, {"const": "abz"}, {"allOf": [{"pattern": "^ab"}]}])
def test_a_format_beside_something_exact_is_passed_over(rule: dict[str, Any]) -> None:
    schema: dict[str, Any] = {"type": "string", "format": "nanoid", **rule}
    assert is_allowed(schema, "abz")
    assert not is_allowed(schema, "z")
    assert is_allowed({"type": "object", "properties": {"x": schema}}, {"x": "abz"})


@pytest.mark.parametrize("rule", [{}, {"maxLength": 5}, {"allOf": [{"maxLength": 5}]}])
def test_other_formats_are_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="nanoid"):
        compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps({"type": "string", "format": "nanoid", **rule})))


@pytest.mark.parametrize("data", [b"", b"a", b"ab", b"abc", b"\xff\xfe\xfd\xfc"])
def test_base64_is_a_pattern(data: bytes) -> None:
    schema = TypeAdapter(Base64Bytes).json_schema()
    assert is_allowed(schema, base64.b64encode(data).decode())
    assert not is_allowed(schema, base64.b64encode(data).decode() + "a")
    assert is_allowed({"type": "string", "format": "base64url"}, base64.urlsafe_b64encode(data * 3).decode())
