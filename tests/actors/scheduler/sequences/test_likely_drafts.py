"""Plans are short while a draft is likely to be accepted, and as long as without speculation otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.sequences.likely_drafts import LikelyDrafts
from actors.scheduler.sequences.sequence import Sequence
from tests.support.planner_bench import PlannerBench, sequence_of

LIKELY_TOKENS = 8


def answer_of(n_tokens: int, speculation: bool = True) -> Sequence:
    sequence = sequence_of(1, [1, 2, 3], speculation=speculation, max_tokens=1000)
    sequence.append([9] * n_tokens)
    return sequence


def test_drafts_are_likely_at_first_and_after_an_accepted_one() -> None:
    likely, sequence = LikelyDrafts(), answer_of(0)
    assert likely.is_likely(sequence)
    sequence.append([9] * LIKELY_TOKENS)
    assert not likely.is_likely(sequence)
    likely.verified(sequence, 4, 2)
    sequence.append([9] * (LIKELY_TOKENS - 1))
    assert likely.is_likely(sequence)
    sequence.append([9])
    assert not likely.is_likely(sequence)


@pytest.mark.parametrize(("n_drafts", "n_accepted"), [(0, 0), (4, 1), (1, 0)])
def test_a_draft_that_fails_changes_nothing(n_drafts: int, n_accepted: int) -> None:
    likely, resting, accepting = LikelyDrafts(), answer_of(LIKELY_TOKENS), sequence_of(2, speculation=True)
    likely.verified(accepting, 2, 2)
    for sequence in (resting, accepting):
        likely.verified(sequence, n_drafts, n_accepted)
    assert not likely.is_likely(resting)
    assert likely.is_likely(accepting)
    assert likely.has_any([resting, accepting])
    assert not likely.has_any([resting])


def test_a_sequence_that_wants_no_drafts_keeps_nobody_waiting() -> None:
    likely, sequence = LikelyDrafts(), answer_of(0, speculation=False)
    assert not likely.is_likely(sequence)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_after_a_while_without_acceptance_plans_are_long_again(results: list[tuple[int, int, int]]) -> None:
    likely, sequence, last = LikelyDrafts(), answer_of(0), 3
    for n_new, n_drafts, n_accepted in results:
        sequence.append([9] * n_new)
        likely.verified(sequence, n_drafts, min(n_accepted, n_drafts))
        if min(n_accepted, n_drafts) * 2 >= n_drafts > 0:
            last = sequence.known
        assert likely.is_likely(sequence) == (sequence.known < last + LIKELY_TOKENS)
    assert len(likely) <= 1
    likely.end(sequence.number)
    assert len(likely) == 0


def test_leases_are_as_long_as_without_speculation_once_no_draft_is_likely() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, max_lease_steps=8)  # steps of a millisecond
    sequence = bench.add([1, 2, 3], max_tokens=60, speculation=True)
    lengths = []
    while (planned := bench.plan()) is not None:
        lengths.append((sequence.n_generated, planned.plan.n_steps))
        bench.apply()
    assert max(n_steps for n_known, n_steps in lengths if n_known < LIKELY_TOKENS) == 4
    assert max(n_steps for n_known, n_steps in lengths if n_known >= LIKELY_TOKENS) == 8
