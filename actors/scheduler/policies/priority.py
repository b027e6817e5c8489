"""By priority, with ageing: a waiting sequence gains one level with each `ageing_s` seconds.

The order of two sequences never changes while both wait, because both gain levels at the same pace. So the key is the time of
arrival plus `ageing_s` for each level, and no queue is ever sorted again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Values
from typing import TYPE_CHECKING

from actors.scheduler.sequences.policy import Key, PolicyName, SchedulingPolicy

if TYPE_CHECKING:
    from actors.scheduler.sequences.sequence import Sequence

_AWAITED_S = 60.0  # after an urgent sequence others are expected


class PriorityPolicy(SchedulingPolicy):
    """By priority (the lowest number first), then by arrival. A higher priority displaces a running sequence that asks for a
    lower one and has not waited long enough to be its equal."""

    name = PolicyName.PRIORITY
    displaces = True

    def __init__(self, ageing_s: float = 0.0, now_s: Callable[[], float] = lambda: 0.0) -> None:
        """ageing_s: seconds of waiting that count as one level of priority; 0: none do. now_s: the clock of the timelines."""
        self._ageing_s, self._now_s = ageing_s, now_s
        self._levels: Counter[int] = Counter()  # sequences of each priority that have not ended
        self._urgent_s = -math.inf  # when a sequence came last that is more urgent than others

    def key(self, sequence: Sequence) -> Key:
        if not self._ageing_s:
            return sequence.terms.priority, sequence.number
        arrived_s = sequence.timeline.arrived_s - sequence.age_s
        return arrived_s + sequence.terms.priority * self._ageing_s, sequence.number

    def short_key(self, sequence: Sequence) -> Key:
        return sequence.terms.priority, sequence.n_unplanned, sequence.number

    def arrived(self, sequence: Sequence) -> None:
        self._levels[sequence.terms.priority] += 1
        if sequence.terms.priority < max(self._levels):
            self._urgent_s = sequence.timeline.arrived_s

    def ended(self, sequence: Sequence) -> None:
        level = sequence.terms.priority
        self._levels[level] -= 1
        if not self._levels[level]:
            del self._levels[level]

    def victim_for(self, waiting: Sequence, running: Values[Sequence], may_give: Callable[[Sequence], bool]) -> Sequence | None:
        key, priority = self.key(waiting), waiting.terms.priority
        if priority >= max(self._levels):
            return None
        for sequence in reversed(running):
            if self.key(sequence) <= key:
                return None
            if sequence.terms.priority > priority and may_give(sequence):
                return sequence
        return None

    def awaits_urgent(self) -> bool:
        return self._now_s() - self._urgent_s < _AWAITED_S

    def may_hurry(self, prompt: Sequence) -> bool:
        return prompt.terms.priority < max(self._levels)

    def is_urgent(self, prompt: Sequence, running: Sequence) -> bool:
        return prompt.terms.priority < running.terms.priority
