"""Objects that name their properties have no others; schemas whose parts hold together stay as they are."""

from __future__ import annotations

from typing import Any

import pytest

from actors.gateway.text.schemas.closed_objects import closed

POINT: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
CLOSED_POINT: dict[str, Any] = POINT | {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (POINT, CLOSED_POINT),
        ({"type": "array", "items": POINT}, {"type": "array", "items": CLOSED_POINT}),
        ({"properties": {"p": POINT}}, {"properties": {"p": CLOSED_POINT}, "additionalProperties": False}),
        ({"anyOf": [POINT, {"type": "null"}]}, {"anyOf": [CLOSED_POINT, {"type": "null"}]}),
        ({"$defs": {"P": POINT}, "$ref": "#/$defs/P"}, {"$defs": {"P": CLOSED_POINT}, "$ref": "#/$defs/P"}),
        (
            {"properties": {"p": {"allOf": [POINT, {"properties": {"y": {}}}]}, "q": POINT}},
            {
                "properties": {"p": {"allOf": [POINT, {"properties": {"y": {}}}]}, "q": CLOSED_POINT},
                "additionalProperties": False,
            },
        ),
        ({"allOf": [POINT]}, {"allOf": [CLOSED_POINT]}),
        ({"patternProperties": {"^y": {}}}, {"patternProperties": {"^y": {}}, "additionalProperties": False}),
        ({"type": "object", "additionalProperties": POINT}, {"type": "object", "additionalProperties": CLOSED_POINT}),
    ],
)
def test_objects_that_name_their_properties_are_closed(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert closed(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object"},
        POINT | {"additionalProperties": True},
        POINT | {"patternProperties": {"^y": {}}},
        POINT | {"minProperties": 2},
        {"patternProperties": {"^y": {}}, "required": ["x"]},
        POINT | {"required": ["y"]},
        POINT | {"anyOf": [{"required": ["x"]}, {"properties": {"y": {}}}]},
        {"allOf": [POINT, {"properties": {"y": {}}}]},
        {"$defs": {"P": POINT}, "allOf": [{"$ref": "#/$defs/P"}], "properties": {"y": {}}},
        POINT | {"if": {"properties": {"x": {"const": 1}}}, "then": {"properties": {"y": {}}}},
        {"$defs": {"P": POINT}, "type": "array", "items": {"allOf": [{"$ref": "#/$defs/P"}, {"properties": {"y": {}}}]}},
    ],
)
def test_other_schemas_stay_as_they_are(schema: Any) -> None:
    assert closed(schema) == schema


def test_the_schema_that_was_given_is_not_changed() -> None:
    schema = {"type": "array", "items": dict(POINT)}
    closed(schema)
    assert schema == {"type": "array", "items": POINT}


@pytest.mark.parametrize("schema", [{"allOf": 3}, {"properties": {"a": {}}, "required": 3}])
def test_what_is_no_schema_stays_as_it_is(schema: dict[str, Any]) -> None:
    """The library refuses it, and says where."""
    assert closed(schema) == schema
