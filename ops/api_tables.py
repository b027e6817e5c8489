"""Draws the tables of docs/api.md: the fields of each request body, and the fields that are ignored or refused."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from msgspec import inspect

from actors.gateway.bodies.fields.foreign_fields import IGNORED_FIELDS, NOT_OFFERED_FIELDS
from actors.gateway.bodies.schema import BatchBody, ChatBody, CompletionBody, GenerateBody
from actors.gateway.http.endpoints.tokenize import DetokenizeBody, TokenizeBody
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

_BODIES: dict[str, type[msgspec.Struct]] = {
    "chat/completions": ChatBody,
    "completions": CompletionBody,
    "generate": GenerateBody,
    "batch": BatchBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
_LEAST_GROUPED = 10_000
_NOUN = re.compile(r"^(list|integer|number|string|object)")
_CHOSEN_BY_SERVER = frozenset(("seed", "max_tokens", "logprobs"))  # the wire's default is not what clients see


def fields_table() -> str:
    """One row for each field: its type and range, its default, and the endpoints that take it."""
    names = dict.fromkeys(name for body in _BODIES.values() for name in body.__struct_fields__)
    lines = [f"| field | type | default | {' | '.join(_BODIES)} |", "|---" * (3 + len(_BODIES)) + "|"]
    defaults = {**_defaults_of(Terms()), **_defaults_of(Sampling())}
    for name in sorted(names):
        types = dict.fromkeys(_type_of(body, name) for body in _BODIES.values() if name in body.__struct_fields__)
        marks = [("yes" if name in body.__struct_fields__ else "") for body in _BODIES.values()]
        lines.append(f"| `{name}` | {'; '.join(types)} | {defaults.get(name, '')} | {' | '.join(marks)} |")
    return "\n".join(lines)


def other_fields_table() -> str:
    """The fields of other servers' APIs that are ignored, and those that are refused, with the values that are accepted."""
    lines = ["| field | |", "|---|---|", f"| {', '.join(f'`{name}`' for name in sorted(IGNORED_FIELDS))} | ignored |"]
    for name, accepted in sorted(NOT_OFFERED_FIELDS.items()):
        values = " or ".join(dict.fromkeys(f"`{json.dumps(value)}`" for value in (*accepted, None)))
        lines.append(f"| `{name}` | refused, unless it is {values} |")
    return "\n".join(lines)


def _defaults_of(struct: msgspec.Struct) -> dict[str, str]:
    values = {name: getattr(struct, name) for name in struct.__struct_fields__ if name not in _CHOSEN_BY_SERVER}
    return {name: json.dumps(value) for name, value in values.items() if isinstance(value, int | float)}


def _type_of(body: type[msgspec.Struct], name: str) -> str:
    field = next(field for field in msgspec.structs.fields(body) if field.name == name)
    return words_of(inspect.type_info(field.type))


def words_of(kind: inspect.Type) -> str:
    """A type and its range in the words of JSON."""
    match kind:
        case inspect.Metadata(type=described):
            return words_of(described)
        case inspect.UnionType(types=types):
            return " or ".join(words_of(some) for some in types if not isinstance(some, inspect.NoneType))
        case inspect.IntType(ge=low, le=high):
            return "integer" + _range(None, low, high)
        case inspect.FloatType(gt=above, ge=low, le=high):
            return "number" + _range(above, low, high)
        case inspect.LiteralType(values=values):
            return " or ".join(f"`{json.dumps(value)}`" for value in values)
        case inspect.EnumType(cls=cls):
            return " or ".join(f"`{json.dumps(member.value)}`" for member in cls)
        case inspect.StrType():
            return "string"
        case inspect.BoolType():
            return "true or false"
        case inspect.ListType(item_type=item):
            return "list" if isinstance(item, inspect.AnyType) else "list of " + _NOUN.sub(r"\1s", words_of(item))
        case inspect.StructType(fields=fields):
            return "object with " + ", ".join(f"`{field.name}`" for field in fields)
        case _:
            return "object"


def _range(above: Any, low: Any, high: Any) -> str:
    bounds = [f"{sign} {number(bound)}" for sign, bound in ((">", above), (">=", low), ("<=", high)) if _is_told(bound)]
    return f" {', '.join(bounds)}" if bounds else ""


def number(value: float) -> str:
    """A number as TOML and Python write it: large whole ones in groups of three digits."""
    return f"{int(value):_}" if abs(value) >= _LEAST_GROUPED and value == int(value) else f"{value:g}"


def _is_told(bound: Any) -> bool:
    """Whether a bound says more than that a number has 31 or 63 bits."""
    return bound is not None and abs(bound) < 2**31 - 1
