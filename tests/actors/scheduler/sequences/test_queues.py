"""Sequences by state, sorted by the admission order, and the slots."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from actors.scheduler.policies.priority import PriorityPolicy
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence, State
from tests.support.planner_bench import sequence_of


def numbers(sequences: Iterable[Sequence]) -> list[int]:
    return [sequence.number for sequence in sequences]


def queues_with(*priorities: int, n_slots: int = 2) -> SequenceQueues:
    queues = SequenceQueues(PriorityPolicy(), n_slots)
    for number, priority in enumerate(priorities):
        queues.add(sequence_of(number, priority=priority))
    return queues


def test_both_queues_are_sorted_by_priority_and_arrival() -> None:
    queues = queues_with(1, 0, 1, 0, n_slots=4)
    assert numbers(queues.waiting) == [1, 3, 0, 2]
    for sequence in reversed(list(queues.waiting)):
        queues.start(sequence)
    assert numbers(queues.running) == [1, 3, 0, 2]
    assert queues.waiting == []


def test_a_preempted_sequence_waits_at_its_old_place_and_its_slot_is_free() -> None:
    queues = queues_with(0, 0, 0)
    first, second, _ = queues.waiting
    queues.start(first)
    queues.start(second)
    assert not queues.has_slot
    second.pages = [4, 5]
    assert queues.preempt(second) == [4, 5]
    assert numbers(queues.waiting) == [1, 2]
    assert queues.has_slot
    assert (second.state, second.slot, second.pages, second.stay) == (State.WAITING, -1, [], 1)


def test_the_lowest_free_slot_is_taken() -> None:
    queues = queues_with(0, 0, 0, n_slots=3)
    for sequence in list(queues.waiting):
        queues.start(sequence)
    assert [sequence.slot for sequence in queues.running] == [0, 1, 2]
    queues.preempt(queues.running[1])
    queues.preempt(queues.running[0])
    queues.start(list(queues.waiting)[1])
    assert [sequence.slot for sequence in queues.running] == [0, 2]


def test_a_full_queue_has_places_for_callers_below_their_part() -> None:
    queues = SequenceQueues(PriorityPolicy(), 2)
    for number in range(4):
        assert queues.places(b"flood", 4) == (number, 4)
        queues.add(sequence_of(number, caller=b"flood"))
    assert queues.places(b"flood", 4) == (4, 4), "its places are taken, by itself"
    for number in range(4, 6):
        assert queues.places(b"small", 4) == (number, 8), "it may have two of four"
        queues.add(sequence_of(number, caller=b"small"))
    assert queues.places(b"small", 4) == (6, 4)
    assert queues.places(b"third", 4) == (6, 8)


@pytest.mark.parametrize("is_running", [True, False])
def test_what_has_ended_is_found_no_more(is_running: bool) -> None:
    queues = queues_with(0)
    (sequence,) = queues.waiting
    if is_running:
        queues.start(sequence)
    assert queues.find("gateway/0", 0) is sequence
    assert queues.of_gateway("gateway/0") == [sequence]
    assert queues.of_gateway("gateway/1") == []
    queues.finish(sequence)
    assert queues.find("gateway/0", 0) is None
    assert (len(queues), queues.waiting, queues.running) == (0, [], [])
    assert sequence.state is State.ENDED


def test_running_sequences_keep_their_slots_in_a_new_gang_which_must_have_them() -> None:
    queues = queues_with(0, 0, 0)
    for sequence in list(queues.waiting)[:2]:
        queues.start(sequence)
    queues.finish(queues.running[0])
    queues.set_slots(2)
    assert queues.running[0].slot == 1
    queues.start(queues.waiting.first(1)[0])
    assert [sequence.slot for sequence in queues.running] == [1, 0]
    assert not queues.has_slot
    with pytest.raises(AssertionError, match="slots: expected less than 1, got 1"):
        queues.set_slots(1)
