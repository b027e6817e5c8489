"""Received drafts (late, wrong, cut) and the reports of new tokens to speculation."""

from __future__ import annotations

from actors.scheduler.planning.drafts import ReceivedDrafts, TailReport
from messages.drafts import Drafts
from messages.wire.arrays import int32s, int64s
from tests.support.planner_bench import sequence_of


def received(*rows: tuple[int, int, list[int]]) -> ReceivedDrafts:
    drafts = ReceivedDrafts()
    drafts.receive(
        Drafts(
            sequences=int64s([number for number, _, _ in rows]),
            starts=int32s([start for _, start, _ in rows]),
            counts=int32s([len(ids) for _, _, ids in rows]),
            ids=int32s([token for _, _, ids in rows for token in ids]),
        ),
        is_running=lambda number: True,
    )
    return drafts


def test_each_sequence_takes_its_own_draft_as_deep_as_it_wants() -> None:
    drafts = received((1, 3, [7, 8, 9]), (2, 3, [5]))
    one, two = sequence_of(1), sequence_of(2)
    assert drafts.pop(one, 2) == [7, 8]
    assert drafts.pop(two, 2) == [5]
    assert drafts.pop(sequence_of(3), 2) == []


def test_the_rest_of_a_draft_stays_while_the_tokens_agree() -> None:
    drafts, sequence = received((1, 3, [7, 8, 9])), sequence_of(1)
    sequence.append([7, 8])
    assert drafts.pop(sequence, 4) == [9]
    sequence.append([9])
    assert drafts.pop(sequence, 4) == []  # it is used up


def test_a_draft_that_was_wrong_or_comes_too_early_is_dropped() -> None:
    drafts, sequence = received((1, 3, [7, 8, 9])), sequence_of(1)
    sequence.append([7, 1])
    assert drafts.pop(sequence, 4) == []
    assert not drafts.extends_past_flight(sequence)
    assert len(drafts) == 0
    ahead = received((1, 5, [7]))
    assert ahead.pop(sequence_of(1), 4) == []
    assert ahead.pop(sequence_of(1), 4) == []


def test_a_newer_draft_replaces_an_older_one_and_clear_drops_all() -> None:
    drafts, sequence = received((1, 3, [7]), (1, 3, [8])), sequence_of(1)
    assert drafts.pop(sequence, 4) == [8]
    drafts.clear()
    assert drafts.pop(sequence, 4) == []


def test_a_draft_counts_past_the_tokens_in_flight() -> None:
    drafts, sequence = received((1, 3, [7, 8])), sequence_of(1)
    assert drafts.extends_past_flight(sequence)
    sequence.in_flight = 2
    assert not drafts.extends_past_flight(sequence)


def test_nothing_waits_for_a_draft_that_known_tokens_have_refuted() -> None:
    drafts, sequence = received((1, 3, [7, 8, 9, 9, 9])), sequence_of(1)
    sequence.in_flight = 2
    assert drafts.extends_past_flight(sequence)
    sequence.append([6])
    sequence.in_flight = 1
    assert not drafts.extends_past_flight(sequence)


def test_a_report_has_the_whole_prompt_first_and_then_what_is_new() -> None:
    report, one, two = TailReport(), sequence_of(1, [1, 2, 3]), sequence_of(2, [4])
    assert report.take() is None
    report.add(one, 0, 0)
    report.add(two, 0, 0)
    tails = report.take()
    assert tails is not None
    assert (tails.starts.tolist(), tails.counts.tolist(), tails.ids.tolist()) == ([0, 0], [3, 1], [1, 2, 3, 4])
    one.append([9, 9])
    report.add(one, 4, 1)
    report.end(two)
    report.end(sequence_of(3))  # it was never reported
    tails = report.take()
    assert tails is not None
    assert (tails.sequences.tolist(), tails.starts.tolist()) == ([1, 2], [3, 0])
    assert (tails.counts.tolist(), tails.ids.tolist()) == ([2, -1], [9, 9])
    assert (tails.drafted.tolist(), tails.accepted.tolist()) == ([4, 0], [1, 0])
    assert report.take() is None


def test_a_new_speculation_process_gets_whole_sequences_again() -> None:
    report, sequence = TailReport(), sequence_of(1, [1, 2, 3])
    report.add(sequence, 0, 0)
    report.clear()
    assert report.take() is None
    report.add(sequence, 0, 0)
    tails = report.take()
    assert tails is not None
    assert (tails.starts.tolist(), tails.counts.tolist()) == ([0], [3])
