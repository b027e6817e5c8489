"""By priority, then by arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.scheduler.sequences.policy import Key, SchedulingPolicy

if TYPE_CHECKING:
    from actors.scheduler.sequences.sequence import Sequence


class PriorityPolicy(SchedulingPolicy):
    """By priority (the lowest number first), then by arrival."""

    def key(self, sequence: Sequence) -> Key:
        return sequence.terms.priority, sequence.number

    def short_key(self, sequence: Sequence) -> Key:
        return sequence.terms.priority, sequence.n_unplanned, sequence.number
