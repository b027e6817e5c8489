"""The length of drafts: it follows how well matches predict, stays within its bounds, and is 0 where drafts do not pay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.speculation.draft_length import DraftLength

LONGEST_MATCH = 4
NOTES = st.lists(st.tuples(st.integers(1, LONGEST_MATCH), st.booleans()), max_size=80)


def after(*notes: tuple[int, bool]) -> DraftLength:
    length = DraftLength(LONGEST_MATCH)
    for n_matched, is_right in notes:
        length.note(n_matched, is_right)
    return length


@pytest.mark.parametrize("n_matched", [2, 3, 4])
def test_a_match_of_a_new_sequence_is_worth_a_draft(n_matched: int) -> None:
    assert after().wanted(n_matched, 16) > 0


def test_without_a_match_there_is_no_draft() -> None:
    assert after(*[(4, True)] * 20).wanted(0, 16) == 0


def test_matches_that_do_not_predict_end_the_drafts_and_those_that_do_bring_them_back() -> None:
    length = after(*[(n_matched, False) for n_matched in (2, 3, 4)] * 40)
    assert [length.wanted(n_matched, 16) for n_matched in (2, 3, 4)] == [0, 0, 0]
    n_right = 0
    while not length.wanted(4, 16):
        length.note(4, True)
        n_right += 1
    assert 1 < n_right < 10  # one lucky token says nothing
    assert length.wanted(2, 16) == 0  # short matches have not shown anything


def test_a_text_that_is_repeated_gets_the_longest_drafts() -> None:
    assert after(*[(4, True)] * 30).wanted(4, 16) == 16


def test_a_draft_ends_where_its_tokens_become_unlikely() -> None:
    half = after(*[(4, True), (4, False)] * 40)
    assert 2 <= half.wanted(4, 64) <= 6  # 1/2, 1/4, 1/8, 1/16, 1/32


@given(NOTES, st.integers(0, LONGEST_MATCH), st.integers(1, 64))
def test_the_length_is_nothing_or_within_its_bounds(notes: list[tuple[int, bool]], n_matched: int, longest: int) -> None:
    assert 0 <= after(*notes).wanted(n_matched, longest) <= longest


@given(NOTES, st.integers(1, LONGEST_MATCH))
def test_a_right_prediction_never_shortens_drafts_and_a_wrong_one_never_lengthens_them(
    notes: list[tuple[int, bool]], n_matched: int
) -> None:
    now = after(*notes).wanted(n_matched, 16)
    assert (
        after(*notes, (n_matched, True)).wanted(n_matched, 16) >= now >= after(*notes, (n_matched, False)).wanted(n_matched, 16)
    )
