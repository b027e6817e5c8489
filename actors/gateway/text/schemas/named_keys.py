"""JSON schemas that say with `propertyNames` which keys an object may have, as zod's records and pydantic's dictionaries do.

The library of grammars does not know this keyword. It knows `properties` and `patternProperties`, which say the same where the
keys are any texts, texts of a list, or texts that match a pattern.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.parts import rewritten
from actors.gateway.text.schemas.references import definitions_of, followed

_KEY = "propertyNames"
_OTHERS = "additionalProperties"
_LENGTHS = {"minLength", "maxLength"}
_SAYS_NOTHING = {"title", "description", "default", "examples", "$comment"}


def with_named_keys(schema: Any) -> Any:
    """The schema without each `propertyNames` that other keywords can express. The same values match."""
    definitions = definitions_of(schema)
    return rewritten(schema, lambda one: _named(one, definitions))


def _named(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if _KEY not in schema or "patternProperties" in schema:
        return schema
    rules = _rules(schema[_KEY], definitions)
    rest = {key: value for key, value in schema.items() if key != _KEY}
    return schema if rules is None else _with_keys(rest, rules) or schema


def _rules(names: Any, definitions: dict[str, Any]) -> dict[str, Any] | None:
    """What a `propertyNames` says of keys, all of which are texts; None if that is not known."""
    if names is True:
        return {}
    if isinstance(names, dict) and set(names) - _SAYS_NOTHING == {"$ref"}:
        names = followed(names, definitions)
        if not names:
            return None
    if not isinstance(names, dict) or names.get("type", "string") != "string":
        return None
    return {key: value for key, value in names.items() if key not in _SAYS_NOTHING | {"type"}}


def _with_keys(rest: dict[str, Any], rules: dict[str, Any]) -> dict[str, Any] | None:
    """`rest` for objects whose keys follow `rules`; None if no other keywords express that."""
    if not rules:
        return rest
    named, others = rest.get("properties", {}), rest.get(_OTHERS, True)
    listed = [rules["const"]] if set(rules) == {"const"} else rules.get("enum") if set(rules) == {"enum"} else None
    if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
        is_subset = isinstance(named, dict) and set(named) <= set(listed)
        return {**rest, "properties": {name: named.get(name, others) for name in listed}, _OTHERS: False} if is_subset else None
    pattern = _pattern(rules)
    return {**rest, "patternProperties": {pattern: others}, _OTHERS: False} if pattern and not named else None


def _pattern(rules: dict[str, Any]) -> str:
    """The expression that keys match; "" if `rules` are none that one expression has."""
    if set(rules) == {"pattern"} and isinstance(rules["pattern"], str):
        return rules["pattern"]
    least, most = rules.get("minLength", 0), rules.get("maxLength", "")
    if set(rules) <= _LENGTHS and isinstance(least, int) and (most == "" or isinstance(most, int)):
        return rf"^[\s\S]{{{least},{most}}}$"
    return ""
