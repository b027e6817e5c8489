"""First come, first served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.scheduler.sequences.policy import Key, PolicyName, SchedulingPolicy

if TYPE_CHECKING:
    from actors.scheduler.sequences.sequence import Sequence


class FcfsPolicy(SchedulingPolicy):
    """By arrival alone; the priorities that clients ask for are ignored."""

    name = PolicyName.FCFS

    def key(self, sequence: Sequence) -> Key:
        return (sequence.number,)

    def short_key(self, sequence: Sequence) -> Key:
        return sequence.n_unplanned, sequence.number
