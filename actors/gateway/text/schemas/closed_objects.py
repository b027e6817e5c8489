"""JSON schemas whose objects have no other keys than those that they name.

In JSON Schema an object may have any other keys unless `additionalProperties` says no. Few who write a schema want that, and a
small model, once it has invented one key, invents keys until its tokens are used up. So an object that names its properties and
does not speak of others has none, as in grammars of llama.cpp and xgrammar, and neither has one that has patterns of names
alone. `additionalProperties: true` allows them.
"""

from __future__ import annotations

import json
from typing import Any

from actors.gateway.text.schemas.parts import parts_of, with_parts

# Several schemas hold for the same object there, and each may name keys that the others do not.
_TOGETHER = {"if", "then", "else", "not", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"}
_OTHERS = {"additionalProperties", "patternProperties", "minProperties"}


def closed(schema: Any) -> Any:
    """The schema, with `additionalProperties: false` in each object that says which properties it has, and nothing of others.

    A part of it in which several schemas may hold for the same object stays as it is, and so does the whole schema if such a
    part has a `$ref`."""
    return schema if _leads_elsewhere(schema) else _close(schema)


def _holds_together(schema: dict[str, Any]) -> bool:
    """True if several schemas in it may hold for the same object."""
    choices = [key for key in ("anyOf", "oneOf", "allOf", "$ref") if key in schema]
    together = _TOGETHER & set(schema) or len(choices) > 1 or (choices and "properties" in schema) or _n_together(schema) > 1
    return bool(together)


def _leads_elsewhere(schema: Any) -> bool:
    """True if a part that holds together may also mean schemas in other places."""
    if not isinstance(schema, dict):
        return False
    if _holds_together(schema):
        return '"$ref"' in (text := json.dumps(schema)) or '"$dynamicRef"' in text
    return any(_leads_elsewhere(inner) for inner in parts_of(schema))


def _n_together(schema: dict[str, Any]) -> int:
    """The number of schemas in `allOf`; 0 if that is no list, which the compiler of grammars refuses."""
    return len(found) if isinstance(found := schema.get("allOf"), list) else 0


def _close(schema: Any) -> Any:
    if not isinstance(schema, dict) or _holds_together(schema):
        return schema
    closing = with_parts(schema, _close)
    named, required = schema.get("properties"), schema.get("required", [])
    is_named = isinstance(named, dict) and named and isinstance(required, list) and set(map(str, required)) <= set(named)
    if (is_named and not _OTHERS & set(schema)) or _has_only_patterns(schema):
        closing["additionalProperties"] = False
    return closing


def _has_only_patterns(schema: dict[str, Any]) -> bool:
    """True if an object has patterns of names, and nothing that other names would be needed for: a dictionary of pydantic."""
    return bool(schema.get("patternProperties")) and not {"properties", "required", "additionalProperties"} & set(schema)
