"""The schemas inside of a JSON schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAPS = ("properties", "patternProperties", "$defs", "definitions")  # names -> schemas
LISTS = ("prefixItems", "anyOf", "oneOf", "allOf", "items")  # `items` is a list in older drafts
_SINGLE = ("items", "propertyNames", "additionalProperties", "additionalItems")
_KEYS = frozenset((*MAPS, *LISTS, *_SINGLE))


def parts_of(schema: dict[str, Any]) -> list[Any]:
    """The schemas right inside of this one."""
    if _KEYS.isdisjoint(schema):  # most schemas have none; those of tools are walked through for each request
        return []
    maps = [found.values() for key in MAPS if isinstance(found := schema.get(key), dict)]
    lists = [found for key in LISTS if isinstance(found := schema.get(key), list)]
    single = [schema[key] for key in _SINGLE if key in schema]
    return [inner for group in (*maps, *lists, single) for inner in group]


def rewritten(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """What `change` makes of the schema, and of each schema in it before. It gets a copy, whose parts are rewritten already."""
    if not isinstance(schema, dict):
        return schema
    return change(with_parts(schema, lambda inner: rewritten(inner, change)))


def with_parts(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy of the schema with what `change` makes of each schema right inside of it."""
    changed = dict(schema)
    if _KEYS.isdisjoint(schema):
        return changed
    for key in MAPS:
        if isinstance(found := schema.get(key), dict):
            changed[key] = {name: change(inner) for name, inner in found.items()}
    for key in LISTS:
        if isinstance(found := schema.get(key), list):
            changed[key] = [change(inner) for inner in found]
    for key in _SINGLE:
        if key in schema:
            changed[key] = change(changed[key])
    return changed
