"""What may happen to the copies of simulated ranks: how long they take, and which of them go wrong.

What is drawn comes from numbers of its own, so that a seed without such copies is not changed by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from actors.scheduler.sequences.sequence import Sequence
from tests.support.simulation.edges import Edges, Fault

_COPY_S = (0.0002, 0.02)
_SLOW_S = (0.02, 0.6)
_HANG_S = (5.0, 20.0)  # the scheduler gives a piece up after five seconds
_SLOW_SHARE = 0.15  # of the loads that nothing else happens to, while faults happen
_AHEAD_SHARE = 0.6  # of the loads ahead of which a sequence runs: half of these are harmed, half are slow
_KINDS = (Fault.FLIPS, Fault.SHORTENS, Fault.EMPTIES)
_HANG_SHARE = 0.05  # of what happens; all copies behind it wait


class CopyFaults:
    """Of one run. While `probability` is above 0, something happens to so many messages with loads, and some are slow. An error
    of the device, which ends its rank, is only aimed at an edge."""

    def __init__(self, seed: int, edges: Edges) -> None:
        self.chance = random.Random(f"copies {seed}: what happens")
        self.edges = edges
        self.probability = 0.0
        self.act_beside: Callable[[Sequence], bool] = lambda sequence: False  # true: the load should be slow
        self._next: list[Fault | None] = []  # what happens to the next loads; None: they are slow

    def run_began(self, sequence: Sequence) -> None:
        """A sequence runs ahead of a load, whose last piece is on its way to the ranks."""
        if self.act_beside(sequence):
            self._next = [None]
        elif self.probability and self.chance.random() < _AHEAD_SHARE:
            self._next = [self.chance.choice((*_KINDS, Fault.HANGS, None, None, None, None))]

    def of_load(self) -> Fault | None:
        """What happens to the next message that has loads."""
        if self._next:
            return self._next[-1]
        if self.chance.random() >= self.probability:
            return None
        return Fault.HANGS if self.chance.random() < _HANG_SHARE else self.chance.choice(_KINDS)

    def takes_s(self, fault: Fault | None, has_loads: bool) -> float:
        """How long the copies of a message take until the rank knows that they have ended."""
        is_chosen = bool(self._next)
        self._next = [] if has_loads else self._next
        if fault is Fault.HANGS:
            return self.chance.uniform(*_HANG_S)
        is_slow = is_chosen or (self.probability > 0 and self.chance.random() < _SLOW_SHARE)
        is_slow &= has_loads
        return self.chance.uniform(*(_SLOW_S if is_slow else _COPY_S))
