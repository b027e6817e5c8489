"""Objects that must have more properties than they name.

The library of grammars counts properties, and does not compare their names where a schema does not give them. So it takes
{"x": 1, "x": 2} for an object of two, which every reader takes for one.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.parts import parts_of

_LEAST = "minProperties"


def counts_repeated_names(schema: Any) -> bool:
    """True if an object in the schema has to have two unnamed properties or more, which an answer may give the same name."""
    if not isinstance(schema, dict):
        return False
    return _counts(schema) or any(map(counts_repeated_names, parts_of(schema)))


def _counts(schema: dict[str, Any]) -> bool:
    least, required = schema.get(_LEAST), schema.get("required", [])
    if not isinstance(least, int | float) or not isinstance(required, list):
        return False
    has_unnamed = schema.get("additionalProperties") is not False or bool(schema.get("patternProperties"))
    return has_unnamed and least - len(set(map(str, required))) > 1
