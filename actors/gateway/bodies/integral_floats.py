"""Integers that a client has written as floats: 4.0 is 4, as other servers have it; 4.5 is refused as before. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.gateway.bodies.body_errors import path_of

_EXACT = 2**53  # floats up to this one can tell neighbouring integers apart


def make_integers(fields: dict[str, Any], error: msgspec.ValidationError) -> bool:
    """Turn the integral floats of an object into integers if one of its own fields must be one. A field of type float takes
    them as well. Lists, such as those of token ids, stay as they are.

    `fields`: of a body; those in an object of the body are turned where the error lies in it. `error`: what `msgspec.convert`
    raised. Returns whether anything has changed, so that another try may go on.
    """
    words, path = path_of(error)
    if not words.endswith("got `float`") or "`int" not in words or "[" in path:
        return False
    values: Any = fields
    for name in path.split(".")[:-1]:
        values = values[name]
    integers = {name: int(value) for name, value in values.items() if _is_integer(value)}
    values.update(integers)
    return bool(integers)


def _is_integer(value: object) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT
