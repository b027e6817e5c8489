"""Times and durations have an end; every text that is allowed still has its format, and the client's own words count."""

from __future__ import annotations

from typing import Any

import pytest

from actors.gateway.text.schemas.short_times import with_short_times
from tests.support.answers.allowed_values import is_allowed

TIMES: dict[str, tuple[list[str], list[str]]] = {
    "time": (["12:00:00Z", "12:00:00.5z", "12:00:00.123456789+01:00", "12:00:00-05:30"], ["12:00:00.1234567890Z", "12:00:00"]),
    "date-time": (["2026-01-02T12:00:00Z", "2026-01-02T12:00:00.123456789-01:00"], ["2026-01-02T12:00:00.1234567890Z"]),
    "duration": (["P1D", "P3Y6M4DT12H30M5S", "PT123456789S", "P2W"], ["P1234567890D", "PT1H1234567890M", "P"]),
    "date": (["2026-01-02"], ["2026-01-2"]),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_have_an_end(name: str) -> None:
    allowed, refused = TIMES[name]
    for schema in ({"type": "string", "format": name}, {"anyOf": [{"type": "null"}, {"type": "string", "format": name}]}):
        assert [text for text in allowed if not is_allowed(schema, text)] == []
        assert [text for text in refused if is_allowed(schema, text)] == []


def test_times_inside_of_a_schema_have_an_end_too() -> None:
    time = {"type": "string", "format": "time"}
    schema = {
        "$defs": {"t": time},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/t"}, "b": {"items": time, "type": "array"}},
    }
    assert is_allowed(schema, {"a": "12:00:00.5Z", "b": ["12:00:00Z"]})
    for value in ({"a": "12:00:00.1234567890Z"}, {"b": ["12:00:00.1234567890Z"]}):
        assert not is_allowed(schema, value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "time", "pattern": "^12"},
        {"format": "time", "const": "12:00:00.1234567890Z"},
        {"format": "time", "enum": ["12:00:00.1234567890Z"]},
        {"type": "string", "format": "email"},
        {"format": 3},
        {"type": "object", "properties": {"format": {"type": "string"}}},
        True,
    ],
)
def test_other_schemas_stay_as_they_are(schema: Any) -> None:
    assert with_short_times(schema) == schema


def test_a_pattern_of_the_client_counts_beside_the_format() -> None:
    schema = {"type": "string", "format": "time", "pattern": r"\.[0-9]{12}Z$"}
    assert is_allowed(schema, "12:00:00.123456789012Z")
    assert not is_allowed(schema, "12:00:00.123Z")
