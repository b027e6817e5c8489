"""Random JSON schemas: every type, nested, with limits and alternatives. Every document that matches one is short."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Schema = dict[str, Any]
_LETTERS = "abcdefghij_-XYZ 0189"
_PATTERNS = ["^[a-f]{2,5}$", "^(x|yy|zzz)-[0-9]{1,3}$", "^[A-Z][a-z]{0,4}$", "^a?b?c?$", r'^[^"\\]{0,5}$', '^[^",]{1,3}$']
_FORMATS = ["date", "time", "date-time", "ipv4", "uuid"]


def random_schema(seed: int) -> Schema:
    """The schema of an object. The same seed gives the same one."""
    return _object(Random(seed), 3)


def _any(rng: Random, depth: int) -> Schema:
    kinds: list[Callable[[Random, int], Schema]] = [_string, _integer, _number, _choice, _simple]
    if depth:
        kinds += [_object, _array, _alternatives, _reference]
    return rng.choice(kinds)(rng, depth - 1)


def _word(rng: Random) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(1, 8)))


def _string(rng: Random, depth: int) -> Schema:
    kind = rng.random()
    if kind < 0.2:
        return {"type": "string", "pattern": rng.choice(_PATTERNS)}
    if kind < 0.3:
        return {"type": "string", "format": rng.choice(_FORMATS)}
    least = rng.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 5)}


def _integer(rng: Random, depth: int) -> Schema:
    least = rng.randint(-200, 200)
    return {"type": "integer", rng.choice(["minimum", "exclusiveMinimum"]): least, "maximum": least + rng.randint(1, 5000)}


def _number(rng: Random, depth: int) -> Schema:
    return {"type": "number", "minimum": rng.randint(-50, 50), "maximum": rng.randint(60, 900), "multipleOf": 0.25}


def _choice(rng: Random, depth: int) -> Schema:
    values = [_word(rng), rng.randint(-99, 99), True, None, 1.5, {_word(rng): [1, "x"]}, [], '"\\/\n']
    return {"const": rng.choice(values)} if rng.random() < 0.3 else {"enum": rng.sample(values, rng.randint(1, 5))}


def _simple(rng: Random, depth: int) -> Schema:
    return {"type": rng.choice(["boolean", "null"])}


def _array(rng: Random, depth: int) -> Schema:
    least = rng.randint(0, 2)
    schema: Schema = {"type": "array", "minItems": least, "maxItems": least + rng.randint(0, 2), "items": _any(rng, depth)}
    if rng.random() < 0.3:
        first = [_any(rng, 0) for _ in range(rng.randint(1, 2))]
        return {"type": "array", "prefixItems": first, "minItems": len(first), "items": False}
    return schema


def _object(rng: Random, depth: int) -> Schema:
    names = list(dict.fromkeys(_word(rng) for _ in range(rng.randint(1, 4))))
    schema: Schema = {
        "type": "object",
        "properties": {name: _any(rng, depth) for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
        "additionalProperties": False,
    }
    return schema


def _alternatives(rng: Random, depth: int) -> Schema:
    return {"anyOf": [_any(rng, depth) for _ in range(rng.randint(1, 3))]}


def _reference(rng: Random, depth: int) -> Schema:
    """One schema used twice."""
    inner = _any(rng, depth)
    return {"type": "object", "properties": {"one": inner, "two": inner}, "required": ["two"], "additionalProperties": False}
