"""Sizes with a unit, for settings whose names end in `_bytes`: "512MiB" or "1.5GB" instead of a number of bytes."""

from __future__ import annotations

import re
from typing import Any

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)\s*", re.IGNORECASE)
_EXPONENTS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_EXAMPLE = 'a size such as "512MiB" or "1.5GB"'
SUFFIX = "_bytes"


def with_sizes_as_bytes(table: dict[str, Any]) -> dict[str, Any]:
    """The table, with a number of bytes in place of each text that is a size. Other texts stay, so that they are refused."""
    return {key: _in_bytes(key, value) for key, value in table.items()}


def explained(expected: str, path: str) -> str:
    """What a setting at `path` expects, with the sizes that it also takes."""
    return f"{expected}, or {_EXAMPLE}" if path.endswith(SUFFIX) and expected.endswith("a whole number") else expected


def _in_bytes(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return with_sizes_as_bytes(value)
    if not (key.endswith(SUFFIX) and isinstance(value, str)) or (size := _SIZE.fullmatch(value)) is None:
        return value
    number, letter, binary, is_named = size.groups()
    unit = 1000 if is_named and not binary else 1024  # as elsewhere: "GB" counts by 1000, "GiB" and a mere "G" by 1024
    return int(float(number) * unit ** _EXPONENTS[letter.lower()])
