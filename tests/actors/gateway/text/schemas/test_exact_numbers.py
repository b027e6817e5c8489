"""Numbers that the library would round are found wherever a schema has values; others are written as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLTokenizer

from actors.gateway.text.grammars import GrammarError, compile_grammar
from actors.gateway.text.schemas.exact_numbers import inexact_number
from messages.generation.grammar import Grammar, GrammarKind
from tests.support.answers.allowed_values import is_allowed


def schemas_with(number: float) -> list[dict[str, Any]]:
    return [{"const": number}, {"enum": ["a", {"b": [number]}]}, {"properties": {"a": {"items": {"const": number}}}}]


@pytest.mark.parametrize("number", [123456789012345678, -999999.9999999999])
def test_a_number_that_is_rounded_is_refused(number: float) -> None:
    for schema in schemas_with(number):
        assert inexact_number(schema, LLTokenizer("byte")) == repr(number)
        with pytest.raises(GrammarError, match=repr(number)):
            compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema)))


@pytest.mark.parametrize("number", [0, -7, 0.1, 1.5e300, 1e16, 2**53, 0.1234567890123456, 3.141592653589793, 5e-324])
def test_other_numbers_pass(number: float) -> None:
    for schema in schemas_with(number):
        assert inexact_number(schema, LLTokenizer("byte")) == ""
    assert is_allowed({"const": [True, 3]}, [True, 3])


def test_a_rounded_number_is_found_among_many() -> None:
    exact = [1_000_000_000_000_000 + at for at in range(300)]
    assert inexact_number({"enum": exact}, LLTokenizer("byte")) == ""
    for place in (0, 150, 300):
        numbers = [*exact[:place], 123456789012345678, *exact[place:]]
        assert inexact_number({"enum": numbers}, LLTokenizer("byte")) == "123456789012345678"


def test_a_number_that_the_library_refuses_hides_no_rounded_one() -> None:
    schema = {"enum": [float("1" + "0" * 400), 123456789012345678, 0.1234567890123456]}
    assert inexact_number(schema, LLTokenizer("byte")) == "123456789012345678"
