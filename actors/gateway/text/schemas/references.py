"""What a `$ref` to a definition of the same schema means."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from actors.gateway.text.schemas.parts import parts_of

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


def looping_reference(schema: Any) -> str:
    """A `$ref` anywhere in the schema that leads to nothing but itself, so that no value matches it; "" if there is none.

    Only pointers are followed, such as "#/$defs/Cat"; the library refuses references that lead nowhere."""
    if not isinstance(schema, dict) or "$id" in schema:
        return ""
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if _leads_to_itself(part, schema):
                return str(part["$ref"])
            left += parts_of(part)
    return ""


def _leads_to_itself(part: dict[str, Any], root: dict[str, Any]) -> bool:
    met = set[int]()
    target: Any = part
    while isinstance(target, dict) and isinstance(reference := target.get("$ref"), str) and reference.startswith("#"):
        if id(target) in met:
            return True
        met.add(id(target))
        target = _pointed(root, reference)
    return False


def _pointed(root: Any, reference: str) -> Any:
    """What a pointer names; None for nothing, and for an anchor."""
    steps = unquote(reference.removeprefix("#")).split("/")
    if steps.pop(0):
        return None
    target = root
    for step in (one.replace("~1", "/").replace("~0", "~") for one in steps):
        if isinstance(target, dict):
            target = target.get(step)
        elif isinstance(target, list) and step.isdecimal() and int(step) < len(target):
            target = target[int(step)]
        else:
            return None
    return target
