"""JSON schemas of which every object in a union with a `discriminator` has its tag.

pydantic does not require a tag that has a default, as in `kind: Literal["cat"] = "cat"`. But who reads an object of such a
union looks for the tag first, and refuses an object without it.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.parts import parts_of, rewritten

_DEFINITIONS = ("$defs", "definitions")


def with_required_tags(schema: Any) -> Any:
    """The schema, whose unions with a `discriminator` require the tag in each of their objects."""
    tags = _tags(schema)
    if not tags:
        return schema
    changed = rewritten(schema, _required)
    for key in _DEFINITIONS:
        if isinstance(found := changed.get(key), dict):
            changed[key] = {name: _with_tags(inner, tags.get(f"#/{key}/{name}", set())) for name, inner in found.items()}
    return changed


def _tag(schema: dict[str, Any]) -> str:
    found = schema.get("discriminator")
    name = found.get("propertyName") if isinstance(found, dict) else None
    return name if isinstance(name, str) else ""


def _members(schema: dict[str, Any]) -> list[Any]:
    return [one for key in ("oneOf", "anyOf") if isinstance(found := schema.get(key), list) for one in found]


def _tags(schema: Any) -> dict[str, set[str]]:
    """Reference -> the tags that the schema there has in unions; "" for schemas that stand in the unions themselves."""
    tags: dict[str, set[str]] = {}
    if isinstance(schema, dict):
        if name := _tag(schema):
            for one in _members(schema):
                tags.setdefault(str(one.get("$ref", "")) if isinstance(one, dict) else "", set()).add(name)
        for inner in parts_of(schema):
            for reference, names in _tags(inner).items():
                tags.setdefault(reference, set()).update(names)
    return tags


def _required(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema; if it is a union with a tag, the objects that stand in it require the tag."""
    if name := _tag(schema):
        for key in ("oneOf", "anyOf"):
            if isinstance(found := schema.get(key), list):
                schema[key] = [_with_tags(one, {name}) for one in found]
    return schema


def _with_tags(schema: Any, tags: set[str]) -> Any:
    """The schema; an object that has properties of these names requires them."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return schema
    required = found if isinstance(found := schema.get("required"), list) else []
    return {**schema, "required": [*required, *sorted(tags & set(properties) - set(map(str, required)))]}
