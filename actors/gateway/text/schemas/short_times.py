"""JSON schemas whose times and durations have at most nine digits where the format allows any number.

A second may have any number of decimals in the formats `time` and `date-time`, and a duration any number of days. A small model
that has begun with zeros writes them until its tokens are used up. Nine decimals are nanoseconds; no program keeps more.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.parts import rewritten

_DECIMALS = r"^[^.]*(\.[0-9]{1,9}([zZ+-][0-9:]*)?)?$"
_PATTERNS = {"time": _DECIMALS, "date-time": _DECIMALS, "duration": r"^([^0-9]|[0-9]{1,9}[^0-9])*$"}
_EXACT = {"pattern", "const", "enum"}  # with one of them the client has said more than the format


def with_short_times(schema: Any) -> Any:
    """The schema, with a pattern beside each format of a time that has none."""
    return rewritten(schema, _bounded)


def _bounded(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("format")
    if isinstance(name, str) and name in _PATTERNS and not _EXACT & set(schema):
        schema["pattern"] = _PATTERNS[name]
    return schema
