"""What msgspec says about a value of the wrong type, in words. Pure."""

from __future__ import annotations

import re

import msgspec

_KINDS = re.compile(r"`([^`]*)`")  # "int", or "int | null"
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a dict",
    "null": "none",
}


def wanted_kind(error: msgspec.ValidationError) -> str:
    """What was expected, such as "expected a number >= 0.0" for "Expected `float` >= 0.0"."""
    text = str(error).partition(", got ")[0].partition(" - at `$")[0].replace("Expected", "expected", 1)
    return _KINDS.sub(lambda kinds: " or ".join(_WORDS.get(kind, kind) for kind in kinds[1].split(" | ")), text)
