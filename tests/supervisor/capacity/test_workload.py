"""How a load is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.errors import ConfigError
from supervisor.capacity.workload import OfferedLoad, parse_load


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("5 requests/s, 512 prompt tokens, 128 output tokens", OfferedLoad(5, 512, 128)),
        ("128 output,512 prompt ,  0.5 requests per second", OfferedLoad(0.5, 512, 128)),
        ("5 rps, 512 prompt, 128 output", OfferedLoad(5, 512, 128)),
        ("90 requests/min, 10 tokens in, 1 out", OfferedLoad(1.5, 10, 1)),
    ],
)
def test_a_load_is_three_numbers_in_any_order(text: str, load: OfferedLoad) -> None:
    assert parse_load(text) == load


@given(st.builds(OfferedLoad, st.floats(0.01, 1000).map(lambda x: round(x, 2)), st.integers(1, 10**6), st.integers(1, 10**6)))
def test_what_a_plan_prints_is_read_again(load: OfferedLoad) -> None:
    assert parse_load(load.text()) == load


@pytest.mark.parametrize(
    "text",
    ["", "5", "5 requests/s", "5 requests/s, 512 prompt tokens", "5 requests/s, 5 requests/s, 512 prompt, 128 output",
     "0 requests/s, 512 prompt, 128 output", "5 requests/s, 1.5 prompt, 128 output", "5 apples, 512 prompt, 128 output",
     "-5 requests/s, 512 prompt, 128 output", "5 requests/s, 512 prompt, 1e9 output", "nan requests/s, 1 prompt, 1 output"],
)  # fmt: skip
def test_all_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="load: expected numbers above 0 of requests/s, prompt tokens and output tokens, "):
        parse_load(text)
