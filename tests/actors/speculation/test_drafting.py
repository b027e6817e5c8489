"""Proposals by look-up of the sequence's own past, and how long they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.speculation.draft_length import DraftLength
from actors.speculation.ngram_proposer import NgramProposer


def test_proposes_what_followed_last_time() -> None:
    proposer = NgramProposer(4, 2)
    proposer.extend([1, 2, 3, 4, 5, 9, 9, 2, 3])
    assert proposer.propose(3) == [4, 5, 9]


def test_longer_match_wins_over_later_one() -> None:
    proposer = NgramProposer(3, 1)
    proposer.extend([1, 2, 3, 7, 5, 3, 8, 1, 2, 3])
    assert proposer.propose(1) == [7]


def test_a_loop_is_predicted_for_ever() -> None:
    proposer = NgramProposer(4, 2)
    proposer.extend([5, 6, 7] * 3)
    assert proposer.propose(7) == [5, 6, 7, 5, 6, 7, 5]


def test_nothing_repeats_nothing_is_proposed() -> None:
    proposer = NgramProposer(4, 2)
    proposer.extend(list(range(50)))
    assert proposer.propose(8) == []


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(1, 7), max_size=8))
def test_growing_in_pieces_equals_growing_at_once(tokens: list[int], cuts: list[int]) -> None:
    whole, pieces = NgramProposer(4, 2), NgramProposer(4, 2)
    whole.extend(tokens)
    at = 0
    for cut in [*cuts, len(tokens)]:
        pieces.extend(tokens[at : at + cut])
        at += cut
    assert whole.propose(9) == pieces.propose(9)
    assert len(whole) == len(pieces)


def test_length_follows_acceptance_and_pauses_when_hopeless() -> None:
    length = DraftLength()
    for _ in range(20):
        length.judge(8, 8)
    assert length.wanted(1, 16) == 16
    for _ in range(20):
        length.judge(8, 0)
    assert length.wanted(1, 16) == 0
    assert length.wanted(40, 16) >= 2
