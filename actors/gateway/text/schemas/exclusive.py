"""JSON schemas with `anyOf` in place of each `oneOf` whose schemas differ in a tag or in their types.

The library of grammars takes a `oneOf` only if it finds by itself that no value matches two of its schemas, and it does not
look behind a `$ref`. A union whose members are definitions, each with a tag of its own, is what many programs write.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.parts import rewritten
from actors.gateway.text.schemas.references import definitions_of, followed

_KEY = "oneOf"


def with_exclusive_choices(schema: Any) -> Any:
    """The schema, with an `anyOf` for each `oneOf` of which no value can match two. The same values match."""
    definitions = definitions_of(schema)
    return rewritten(schema, lambda one: _chosen(one, definitions))


def _chosen(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    choices = _list(schema, _KEY)
    has_reference = any(isinstance(one, dict) and "$ref" in one for one in choices)
    if not has_reference or "anyOf" in schema or not _are_apart([followed(one, definitions) for one in choices], definitions):
        return schema
    return {("anyOf" if key == _KEY else key): value for key, value in schema.items()}


def _are_apart(choices: list[dict[str, Any]], definitions: dict[str, Any]) -> bool:
    """True if no value matches two of the schemas: types differ, and objects have a property with a value of its own each."""
    objects = [one for one in choices if one.get("type") == "object"]
    types = [str(one.get("type")).replace("integer", "number") for one in choices if one.get("type") != "object"]
    if len(set(types)) < len(types) or not set(types) <= {"string", "number", "boolean", "null", "array"}:
        return False
    return len(objects) < 2 or any(_is_tag(str(name), objects, definitions) for name in _list(objects[0], "required"))


def _is_tag(name: str, objects: list[dict[str, Any]], definitions: dict[str, Any]) -> bool:
    """True if each object must have the property, with texts that no other one has."""
    seen: set[str] = set()
    for one in objects:
        properties = found if isinstance(found := one.get("properties"), dict) else {}
        tag = followed(properties.get(name), definitions)
        values = [tag["const"]] if "const" in tag else _list(tag, "enum")
        texts = {value for value in values if isinstance(value, str)}
        if name not in _list(one, "required") or not texts or len(texts) < len(values) or texts & seen:
            return False
        seen |= texts
    return True


def _list(schema: dict[str, Any], key: str) -> list[Any]:
    return found if isinstance(found := schema.get(key), list) else []
