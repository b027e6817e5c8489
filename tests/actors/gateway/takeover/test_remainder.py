"""The rest of a response is what the earlier incarnation has not written, however both have cut it into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.takeover.resumed_connection import Remainder


@given(st.lists(st.binary(max_size=9), max_size=12), st.data())
def test_first_part_and_rest_are_the_whole(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    n_written = data.draw(st.integers(0, len(whole)))
    remainder = Remainder(n_written)
    assert whole[:n_written] + b"".join(map(remainder.push, pieces)) == whole
    assert remainder.is_reached


def test_a_response_that_is_shorter_than_what_was_written_is_noticed() -> None:
    remainder = Remainder(5)
    assert remainder.push(b"abcd") == b""
    assert not remainder.is_reached
