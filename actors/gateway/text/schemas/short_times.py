"""JSON schemas whose times and durations have at most nine digits where the format allows any number.

A second may have any number of decimals in the formats `time` and `date-time`, and a duration any number of days. A small model
that has begun with zeros writes them until its tokens are used up. Nine decimals are nanoseconds; no program keeps more.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.parts import with_parts

_DECIMALS = r"^[^.]*(\.[0-9]{1,9}([zZ+-][0-9:]*)?)?$"
_PATTERNS = {"time": _DECIMALS, "date-time": _DECIMALS, "duration": r"^([^0-9]|[0-9]{1,9}[^0-9])*$"}
_EXACT = {"pattern", "const", "enum"}  # with one of them the client has said more than the format


def with_short_times(schema: Any) -> Any:
    """The schema, with a pattern beside each format of a time that has none."""
    if not isinstance(schema, dict):
        return schema
    changed = with_parts(schema, with_short_times)
    name = schema.get("format")
    if isinstance(name, str) and name in _PATTERNS and not _EXACT & set(schema):
        changed["pattern"] = _PATTERNS[name]
    return changed
