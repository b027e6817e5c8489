"""JSON schemas of keywords by chance, several beside each other: some match nothing, and some no server can follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

Schema = dict[str, Any]
_NAMES = "abc"
_SIMPLE: list[Any] = [{"type": "integer"}, {"type": "string", "maxLength": 3}, {"const": "a"}, True, {"type": "boolean"}]
_TYPES = ["string", "integer", "number", "boolean", "null", "array", "object", ["string", "null"], ["integer", "object"]]
_VALUES: list[Any] = [1, 2.5, "a", "abc", None, True, {"a": 1}, [1, 2], []]
_SHAPES: list[Schema] = [{"pattern": "^[ab]$"}, {"enum": ["a", "b"]}, {"maxLength": 2}, {"minLength": 2, "type": "string"}]
_Made = Callable[[Random, int], Any]
# the type that keywords are about, "" for any, and what each of them may say
_KEYWORDS: dict[str, dict[str, _Made]] = {
    "": {
        "type": lambda rng, depth: rng.choice(_TYPES),
        "const": lambda rng, depth: rng.choice(_VALUES),
        "enum": lambda rng, depth: rng.sample(_VALUES, rng.randint(1, 4)),
        "anyOf": lambda rng, depth: _some(rng, depth),
        "oneOf": lambda rng, depth: _some(rng, depth),
        "allOf": lambda rng, depth: _some(rng, depth),
        "$ref": lambda rng, depth: f"#/$defs/{rng.choice(_NAMES)}",
        "not": lambda rng, depth: _one(rng, depth),
        "if": lambda rng, depth: _one(rng, depth),
    },
    "number": {
        "multipleOf": lambda rng, depth: rng.choice([2, 0.5, 3, 0.25]),  # a validator divides floats
        "minimum": lambda rng, depth: rng.randint(-3, 3),
        "maximum": lambda rng, depth: rng.randint(0, 9),
        "exclusiveMinimum": lambda rng, depth: rng.choice([-2, 0, 1.5]),
        "exclusiveMaximum": lambda rng, depth: rng.choice([3, 7.25]),
    },
    "string": {
        "minLength": lambda rng, depth: rng.randint(0, 3),
        "maxLength": lambda rng, depth: rng.randint(1, 5),
        "pattern": lambda rng, depth: rng.choice(["^a+$", "b", "^[a-c]{2,3}$", "^(x|yy)$"]),
    },
    "array": {
        "minItems": lambda rng, depth: rng.randint(0, 2),
        "maxItems": lambda rng, depth: rng.randint(0, 3),
        "items": lambda rng, depth: _one(rng, depth),
        "prefixItems": lambda rng, depth: _some(rng, depth),
        "contains": lambda rng, depth: _one(rng, depth),
        "uniqueItems": lambda rng, depth: rng.choice([True, False]),
    },
    "object": {
        "properties": lambda rng, depth: {name: _one(rng, depth) for name in rng.sample(_NAMES, rng.randint(1, 3))},
        "required": lambda rng, depth: rng.sample(_NAMES, rng.randint(0, 2)),
        "additionalProperties": lambda rng, depth: rng.choice([False, True, _one(rng, depth)]),
        "patternProperties": lambda rng, depth: {rng.choice(["^a", "b$", "^c$"]): _one(rng, depth)},
        "propertyNames": lambda rng, depth: rng.choice(_SHAPES),
        "minProperties": lambda rng, depth: rng.randint(0, 2),
        "maxProperties": lambda rng, depth: rng.randint(0, 3),
        "dependentRequired": lambda rng, depth: {"a": ["b"]},
    },
}
_ALL = {keyword: made for group in _KEYWORDS.values() for keyword, made in group.items()}


def any_schema(seed: int) -> Schema:
    """The schema of a seed; the same each time."""
    rng = Random(seed)
    schema = _one(rng, 3)
    schema = schema if isinstance(schema, dict) else {}
    return schema | {"$defs": {name: _one(rng, 2) for name in _NAMES}} if '"$ref"' in json.dumps(schema) else schema


def _some(rng: Random, depth: int) -> list[Any]:
    return [_one(rng, depth) for _ in range(rng.randint(1, 2))]


def _one(rng: Random, depth: int) -> Any:
    """A schema with up to `depth` - 1 others within each other in it."""
    if depth <= 1:
        return rng.choice(_SIMPLE)
    about = rng.choice(list(_KEYWORDS))
    group = {**_KEYWORDS[about], **{keyword: _ALL[keyword] for keyword in rng.sample(list(_ALL), 1)}}
    schema = {keyword: group[keyword](rng, depth - 1) for keyword in rng.sample(list(group), rng.randint(1, 3))}
    return {**schema, "type": about} if about and rng.random() < 0.75 else schema
