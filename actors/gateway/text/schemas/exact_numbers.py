"""Numbers in schemas that the library of grammars would write as other ones: it keeps them as floats, and rounds some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from actors.gateway.text.schemas.parts import parts_of

_SAFE_DIGITS = 15  # so many are always kept


def inexact_number(schema: Any, tokenizer: LLTokenizer) -> str:
    """The first number among a schema's values that answers would get wrong; "" if there is none. `tokenizer`: of bytes."""
    numbers = list(_long_numbers(schema))
    if not numbers or _written(numbers, tokenizer) == numbers:
        return ""
    return next((repr(number) for number in numbers if _written(number, tokenizer) not in (number, None)), "")


def _written(value: Any, tokenizer: LLTokenizer) -> Any:
    """What an answer has for this value; None if the library refuses it by itself."""
    source = LLMatcher.grammar_from_json_schema(json.dumps({"const": value}), defaults={"whitespace_flexible": False})
    matcher = LLMatcher(tokenizer, source, log_level=0)
    written = bytes(matcher.compute_ff_bytes())
    return json.loads(written) if written else None


def _long_numbers(schema: Any) -> Iterator[float]:
    if not isinstance(schema, dict):
        return
    for key in ("const", "enum"):
        yield from _numbers_in(schema.get(key))
    for inner in parts_of(schema):
        yield from _long_numbers(inner)


def _numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers_in(one)
    elif isinstance(value, int | float) and not isinstance(value, bool) and len(repr(value)) > _SAFE_DIGITS:
        yield value
