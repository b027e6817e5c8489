"""The lengths of many texts as JSON are those that the encoder gives each of them."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.http.formats.json_sizes import json_sizes

PARTS = st.sampled_from(['"', "\\", ",", '","', "\n", "\x01", "é", "日", "a", '\\"'])  # what divides texts in JSON, or looks so


@given(
    st.lists(st.one_of(st.lists(PARTS, max_size=6).map("".join), st.text(st.characters(exclude_categories=["Cs"]))), max_size=9)
)
def test_lengths_are_those_of_the_encoder(texts: list[str]) -> None:
    assert json_sizes(texts).tolist() == [len(msgspec.json.encode(text)) for text in texts]
