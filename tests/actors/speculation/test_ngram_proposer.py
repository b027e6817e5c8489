"""Proposals by look-up of the sequence's own past."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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


def test_of_two_occurrences_the_later_one_is_continued() -> None:
    proposer = NgramProposer(2, 2)
    proposer.extend([1, 2, 7, 1, 2, 8, 1, 2])
    assert proposer.propose(2) == [8, 1]


def test_shorter_matches_than_allowed_propose_nothing() -> None:
    proposer = NgramProposer(4, 2)
    proposer.extend([1, 9, 2, 9])  # only the single token 9 repeats
    assert proposer.propose(4) == []
    proposer = NgramProposer(4, 1)
    proposer.extend([1, 9, 2, 9])
    assert proposer.propose(4) == [2, 9, 2, 9]


def test_a_sequence_shorter_than_every_match_proposes_nothing() -> None:
    proposer = NgramProposer(4, 2)
    proposer.extend([])
    assert proposer.propose(4) == []
    proposer.extend([1])
    assert proposer.propose(4) == []


def naive_proposal(tokens: list[int], longest: int, shortest: int, n: int) -> list[int]:
    """The same by looking at every position."""
    for size in range(longest, shortest - 1, -1):
        if size > len(tokens):
            continue
        tail = tokens[len(tokens) - size :]
        starts = [at + size for at in range(len(tokens) - size) if tokens[at : at + size] == tail]
        if starts:
            continued = list(tokens)
            while len(continued) < len(tokens) + n:
                continued.append(continued[starts[-1] + len(continued) - len(tokens)])
            return continued[len(tokens) :]
    return []


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4), st.integers(0, 3), st.integers(1, 12))
def test_proposals_equal_a_naive_search(tokens: list[int], shortest: int, more: int, n: int) -> None:
    proposer = NgramProposer(shortest + more, shortest)
    proposer.extend(tokens)
    assert proposer.propose(n) == naive_proposal(tokens, shortest + more, shortest, n)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 40), st.integers(1, 3), st.integers(0, 2))
def test_each_new_token_is_compared_with_what_the_tokens_before_it_propose(
    tokens: list[int], n_prompt: int, shortest: int, more: int
) -> None:
    longest = shortest + more
    proposer = NgramProposer(longest, shortest)
    proposer.extend(tokens[:n_prompt])
    notes: list[tuple[int, bool]] = []
    proposer.extend(tokens[n_prompt:], lambda n_matched, is_right: notes.append((n_matched, is_right)))
    expected: list[tuple[int, bool]] = []
    for at in range(n_prompt, len(tokens)):
        proposed = naive_proposal(tokens[:at], longest, shortest, 1)
        if proposed:
            sizes = range(longest, shortest - 1, -1)
            n_matched = next(size for size in sizes if naive_proposal(tokens[:at], size, size, 1))
            expected.append((n_matched, proposed == [tokens[at]]))
    assert notes == expected
