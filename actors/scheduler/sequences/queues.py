"""The waiting and the running queue, and the free slots. Every sequence of the scheduler is in one of the queues. Pure."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Collection

from actors.scheduler.sequences.policy import SchedulingPolicy, WaitingQueue
from actors.scheduler.sequences.queued_work import QueuedWork
from actors.scheduler.sequences.sequence import Sequence, State


class SequenceQueues:
    """Sequences by state. `waiting` and `running` are in the order of `policy`: the first one is planned first. `now_s`: the
    clock of their timelines."""

    def __init__(self, policy: SchedulingPolicy, n_slots: int = 0, now_s: Callable[[], float] = lambda: 0.0) -> None:
        self.policy, self.now_s = policy, now_s
        self.waiting: WaitingQueue = policy.make_queue()
        self.running: list[Sequence] = []
        self.work = QueuedWork()
        self._by_attempt: dict[tuple[str, int], Sequence] = {}
        self._free_slots: list[int] = []  # a heap: the lowest slot is used first
        self.n_moves = 0  # into slots and out of them
        self.n_kept_slots = 0  # free ones that are kept for urgent steps
        self.set_slots(n_slots)

    def set_slots(self, n_slots: int) -> None:
        """Set the number of slots of a new gang. A sequence that is running keeps its slot, which the new gang must have."""
        taken = {sequence.slot for sequence in self.running}
        assert all(slot < n_slots for slot in taken), f"slots: expected less than {n_slots}, got {max(taken)}"
        self._free_slots = [slot for slot in range(n_slots) if slot not in taken]

    @property
    def has_slot(self) -> bool:
        """True if a slot is free."""
        return len(self._free_slots) > self.n_kept_slots

    @property
    def n_free_slots(self) -> int:
        """Slots that no sequence is in, without those that are kept for urgent steps."""
        return max(len(self._free_slots) - self.n_kept_slots, 0)

    def has_slot_beside(self, slots: Collection[int]) -> bool:
        """True if a slot is free that is none of these, kept or not."""
        return any(slot not in slots for slot in self._free_slots)

    def __len__(self) -> int:
        return len(self._by_attempt)

    def find(self, gateway: str, attempt: int) -> Sequence | None:
        """The sequence of an attempt, or None when there is none or it has ended."""
        return self._by_attempt.get((gateway, attempt))

    def of_gateway(self, gateway: str) -> list[Sequence]:
        """Every sequence of one gateway that has not ended."""
        return [sequence for (name, _), sequence in self._by_attempt.items() if name == gateway]

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence into the waiting queue."""
        self._by_attempt[sequence.gateway, sequence.attempt] = sequence
        sequence.timeline.arrived_s = self.now_s()
        self.policy.arrived(sequence)
        self._wait(sequence)

    def start(self, sequence: Sequence, beside: Collection[int] = ()) -> None:
        """Move a waiting sequence to the running queue and into a free slot, which is none of those `beside`."""
        self._leave_queue(sequence)
        sequence.start(self._take_slot(beside))
        self.n_moves += 1
        sequence.timeline.started_s = sequence.timeline.started_s or self.now_s()
        insort(self.running, sequence, key=self.policy.running_key)
        self.policy.started(sequence)

    def preempt(self, sequence: Sequence) -> list[int]:
        """Move a running sequence back to the waiting queue. Returns the pages to release."""
        self._leave_slot(sequence)
        pages = sequence.preempt()
        self._wait(sequence)
        return pages

    def finish(self, sequence: Sequence) -> list[int]:
        """Remove a sequence that has ended. Returns the pages to release."""
        if sequence.state is State.RUNNING:
            self._leave_slot(sequence)
        else:
            self._leave_queue(sequence)
        self.work.ended(sequence)
        del self._by_attempt[sequence.gateway, sequence.attempt]
        self.policy.ended(sequence)
        return sequence.finish()

    def _take_slot(self, beside: Collection[int]) -> int:
        if not beside:
            return heapq.heappop(self._free_slots)
        slot = min(slot for slot in self._free_slots if slot not in beside)
        self._free_slots.remove(slot)
        heapq.heapify(self._free_slots)
        return slot

    def _leave_slot(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.n_moves += 1
        self.policy.stopped(sequence)
        heapq.heappush(self._free_slots, sequence.slot)

    def _wait(self, sequence: Sequence) -> None:
        self.waiting.add(sequence)
        self.work.add(sequence)

    def _leave_queue(self, sequence: Sequence) -> None:
        self.waiting.remove(sequence)
        self.work.remove(sequence)
