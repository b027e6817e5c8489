"""The length of drafts: it follows acceptance, stays within its bounds, and pauses when drafts fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.speculation.draft_length import DraftLength


def after(*results: tuple[int, int]) -> DraftLength:
    length = DraftLength()
    for drafted, accepted in results:
        length.add_result(drafted, accepted)
    return length


def test_length_follows_acceptance_and_pauses_when_hopeless() -> None:
    length = after(*[(8, 8)] * 20)
    assert length.wanted(1, 16) == 16
    for _ in range(20):
        length.add_result(8, 0)
    assert length.wanted(1, 16) == 0
    assert length.wanted(40, 16) >= 2


@pytest.mark.parametrize(("accepted", "n"), [(2, 3), (4, 4), (6, 8), (8, 64)])
def test_the_length_is_two_over_the_failure_rate(accepted: int, n: int) -> None:
    assert after(*[(8, accepted)] * 60).wanted(1, 64) == pytest.approx(n, abs=1)


def test_a_pause_lasts_for_its_tokens_however_they_come() -> None:
    at_once, one_by_one = (after(*[(4, 0)] * 8) for _ in range(2))
    assert at_once.wanted(31, 16) == 0
    assert at_once.wanted(1, 16) >= 2
    assert [one_by_one.wanted(1, 16) > 0 for _ in range(33)] == [False] * 31 + [True] * 2


def test_one_failure_after_a_pause_does_not_pause_again() -> None:
    length = after(*[(4, 0)] * 8)
    assert length.wanted(32, 16) >= 2
    length.add_result(4, 0)
    assert length.wanted(1, 16) >= 2


def test_steps_without_drafts_change_nothing() -> None:
    assert after(*[(0, 0)] * 100).wanted(1, 16) == DraftLength().wanted(1, 16)


@given(st.lists(st.integers(1, 16).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))), st.integers(2, 64))
def test_the_length_is_nothing_or_within_its_bounds(results: list[tuple[int, int]], longest: int) -> None:
    n = after(*results).wanted(1, longest)
    assert n == 0 or 2 <= n <= longest
