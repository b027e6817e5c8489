"""The arguments of a call that was cut off: what is whole of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.requests.tool_calls import ToolCall

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=6) | st.sampled_from(["\\", '"', "{[,]}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}),
        ("{", {}),
        ('{"a', {}),
        ('{"a": "Par', {}),
        ('{"a": "Paris"', {"a": "Paris"}),
        ('{"a": 12', {}),
        ('{"a": 12, "b"', {"a": 12}),
        ('{"a": [1, {"b": "x", "c": "}', {"a": [1, {"b": "x"}]}),
        ('{"a": {"b": [', {"a": {"b": []}}),
        ('{"a": 1}', {"a": 1}),
    ],
)
def test_values_that_are_whole_are_told(arguments: str, expected: dict[str, Any]) -> None:
    assert ToolCall(0, "f", arguments).input_so_far == expected


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.data())
def test_no_value_is_told_that_the_model_has_not_written(whole: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(whole, ensure_ascii=data.draw(st.booleans()))
    stop = data.draw(st.integers(0, len(text)))
    found = ToolCall(0, "f", text[:stop]).input_so_far
    assert is_part(found, whole)
    if stop == len(text):
        assert found == whole


def is_part(found: Any, whole: Any) -> bool:
    """True if `found` is `whole`, or lacks members at the end of objects and lists in it."""
    if isinstance(whole, dict) and isinstance(found, dict):
        return list(found) == list(whole)[: len(found)] and all(is_part(value, whole[key]) for key, value in found.items())
    if isinstance(whole, list) and isinstance(found, list):
        return len(found) <= len(whole) and all(map(is_part, found, whole))
    return type(found) is type(whole) and found == whole
