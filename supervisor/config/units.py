"""Settings with a unit: "512MiB" or "1.5GB" where the name of a key ends in `_bytes`, "90s" or "2min" where it ends in `_s`."""

from __future__ import annotations

import re
from typing import Any

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)\s*", re.IGNORECASE)
_EXPONENTS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)\s*")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_SIZES, _TIMES = "_bytes", "_s"
_EXAMPLES = {_SIZES: 'a size such as "512MiB" or "1.5GB"', _TIMES: 'a time such as "90s" or "2min"'}


def without_units(table: dict[str, Any]) -> dict[str, Any]:
    """Settings by key, or such tables by section, with a number of bytes or seconds in place of each text that is a size or a
    time. Other texts stay, so that they are refused. What a setting itself contains, such as variables of a template, stays."""
    return {key: _section(value) if isinstance(value, dict) else _plain(key, value) for key, value in table.items()}


def explained(expected: str, path: str) -> str:
    """What a setting at `path` expects, with the sizes or times that it also takes."""
    example = next((text for suffix, text in _EXAMPLES.items() if path.endswith(suffix)), "")
    return f"{expected}, or {example}" if example and expected.endswith((" number", " number or null")) else expected


def _section(table: dict[str, Any]) -> dict[str, Any]:
    return {key: _plain(key, value) for key, value in table.items()}


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, str) and key.endswith(_SIZES) and (size := _SIZE.fullmatch(value)) is not None:
        return _in_bytes(*size.groups())
    if isinstance(value, str) and key.endswith(_TIMES) and (time := _TIME.fullmatch(value)) is not None:
        return _in_seconds(*time.groups())
    return value


def _in_bytes(number: str, letter: str, binary: str, is_named: str) -> int:
    unit = 1000 if is_named and not binary else 1024  # as elsewhere: "GB" counts by 1000, "GiB" and a mere "G" by 1024
    return int(float(number) * unit ** _EXPONENTS[letter.lower()])


def _in_seconds(number: str, unit: str) -> int | float:
    seconds = float(number) * _SECONDS[unit]
    return int(seconds) if seconds.is_integer() else seconds  # some settings take whole seconds only
