"""What a `$ref` to a definition of the same schema means."""

from __future__ import annotations

from typing import Any

_MOST_STEPS = 8  # of references that lead to references; more are not followed


def definitions_of(schema: Any) -> dict[str, Any]:
    """Reference -> schema, such as "#/$defs/Cat". Empty where an `$id` may give references another meaning."""
    if not isinstance(schema, dict) or "$id" in schema:
        return {}
    groups = ((key, found) for key in ("$defs", "definitions") if isinstance(found := schema.get(key), dict))
    return {f"#/{key}/{name}": inner for key, found in groups for name, inner in found.items()}


def followed(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema to which its `$ref` leads, or itself; empty if it is none, or the reference leads nowhere.

    A value that matches the schema matches this one; what stands beside a `$ref` is not looked at."""
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, dict):
            return {}
        if "$ref" not in schema:
            return {} if "$id" in schema else schema
        schema = definitions.get(str(schema["$ref"]))
    return {}
