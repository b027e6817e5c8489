"""What the waiting sequences are expected to take: the sum is right whatever happens to them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.policies.priority import PriorityPolicy
from actors.scheduler.sequences.queued_work import QueuedWork
from actors.scheduler.sequences.queues import SequenceQueues
from tests.support.planner_bench import sequence_of

_MOVES = st.lists(st.tuples(st.sampled_from(("add", "start", "preempt", "finish", "fit")), st.integers(0, 50)), max_size=60)


@given(_MOVES)
def test_the_sum_is_that_of_the_waiting_sequences(moves: list[tuple[str, int]]) -> None:
    queues = SequenceQueues(PriorityPolicy(), n_slots=3)
    for number, (move, at) in enumerate(moves):
        everyone = [*queues.waiting, *queues.running]
        if move == "add":
            queues.add(sequence_of(number, [7] * (1 + at), max_tokens=1 + at, caller=bytes([at % 3])))
        elif move == "start" and queues.waiting and queues.has_slot:
            queues.start([*queues.waiting][at % len(queues.waiting)])
        elif move == "preempt" and queues.running:
            queues.preempt(queues.running[at % len(queues.running)])
        elif move == "finish" and everyone:
            queues.finish(everyone[at % len(everyone)])
        elif move == "fit" and everyone:  # another gang has another limit
            everyone[at % len(everyone)].fit_to(1 + at)
        assert queues.work.n_tokens == sum(sequence.queued_tokens for sequence in queues.waiting)
        assert all(sequence.queued_tokens > 0 for sequence in queues.waiting)
        assert not any(sequence.queued_tokens for sequence in queues.running)
        callers = Counter(sequence.terms.caller for sequence in queues.waiting)
        for caller in (b"\0", b"\1", b"new"):
            part = 12 / len({*callers, caller})
            assert queues.work.is_below_part(caller, 12) is (callers[caller] < part)


def test_output_is_expected_to_be_as_long_as_answers_were_and_never_above_the_limit() -> None:
    work, ended = QueuedWork(), sequence_of(1, [7] * 4, max_tokens=1000)
    assert work.left_of(sequence_of(2, [7] * 100, max_tokens=10)) == 110
    assert work.left_of(sequence_of(3, [7] * 100, max_tokens=1000)) == 356
    ended.append([7] * 16)
    for _ in range(200):
        work.ended(ended)
    assert 100 + 16 <= work.left_of(sequence_of(4, [7] * 100, max_tokens=1000)) <= 100 + 17
