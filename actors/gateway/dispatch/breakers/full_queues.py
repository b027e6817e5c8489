"""Sequences that wait because the queues of replicas are full, and the places that have become free for them. Pure.

    refused for now ----------------------------------------------> held, and its replica is full
    new, all replicas are full, and one is held that goes first --> held behind it
    an attempt ends at a replica ---------------------------------> the first that is held goes there, else it is not full

Those of smaller priority numbers go first, of equal ones those of the caller that has least at the replicas for its weight, and
of these the earlier. Without this a new sequence would take each place that becomes free before the held ones are submitted
again, which may have waited for long; and whoever has filled the queues would fill them again before others get a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from actors.gateway.requests.request import GrowingSequence


class FullQueues:
    """The held sequences of one gateway. `part_of`: how much the caller of a sequence has at the replicas for its weight, if so
    many more like this one are there; 0 where callers are not told apart."""

    def __init__(self, part_of: Callable[[GrowingSequence, int], float]) -> None:
        self._part_of = part_of
        self._held: dict[int, GrowingSequence] = {}  # by key
        self._full: set[str] = set()  # schedulers that have refused one, and nothing has ended there since but for a held one
        self._freed: list[str] = []  # schedulers at which attempts have ended since, once for each

    def refused(self, scheduler: str, sequence: GrowingSequence) -> None:
        """A scheduler has no place for this one now."""
        self._full.add(scheduler)
        self.hold([sequence])

    def hold(self, sequences: Iterable[GrowingSequence]) -> None:
        """These wait until a place is free."""
        self._held.update((one.key, one) for one in sequences)

    def release(self, sequence: GrowingSequence) -> None:
        """It waits no longer."""
        self._held.pop(sequence.key, None)

    def clear(self) -> None:
        """All of them are submitted again."""
        self._held.clear()
        self._full.clear()
        self._freed.clear()

    def is_full_for(self, sequences: Sequence[GrowingSequence], candidates: Sequence[str]) -> bool:
        """True if these sequences of one prompt are new, all schedulers that may have them are full, and one of their model is
        held that goes first."""
        new = sequences[0]
        spec = new.spec
        return (
            bool(self._held)
            and not new.n_submissions
            and self._full.issuperset(candidates)
            and any(
                one.spec.model == spec.model and one.spec.terms.priority <= spec.terms.priority for one in self._held.values()
            )
        )

    def closed(self, scheduler: str) -> None:
        """An attempt is over at this scheduler."""
        if self._held and scheduler:
            self._freed.append(scheduler)
        else:
            self._full.discard(scheduler)

    def take(self, scheduler: str, model: int) -> GrowingSequence | None:
        """The sequence that gets a free place of this scheduler, which computes this model; it is held no more."""
        firsts = dict[bytes, GrowingSequence]()  # by caller: parts are compared once for each, not for thousands of sequences
        for one in self._held.values():
            known = firsts.get(one.spec.terms.caller)
            if one.spec.model == model and (known is None or _own_place(one) < _own_place(known)):
                firsts[one.spec.terms.caller] = one
        first = min(firsts.values(), key=self._place_of, default=None)
        if first is None:
            self._full.discard(scheduler)
        else:
            self.release(first)
        return first

    def take_freed(self) -> list[str]:
        """The schedulers with free places, once for each place."""
        freed, self._freed = self._freed, []
        return freed

    def in_order(self, sequences: Iterable[GrowingSequence]) -> list[GrowingSequence]:
        """In the order in which they would get places, if none became free meanwhile."""
        n_before, places = Counter[bytes](), dict[int, tuple[int, float, int]]()
        found = sorted(sequences, key=_own_place)
        for one in found:
            caller = one.spec.terms.caller
            places[one.key] = self._place_of(one, n_before[caller])
            n_before[caller] += 1
        return sorted(found, key=lambda one: places[one.key])

    def _place_of(self, sequence: GrowingSequence, n_before: int = 0) -> tuple[int, float, int]:
        return sequence.spec.terms.priority, self._part_of(sequence, n_before), sequence.key


def _own_place(sequence: GrowingSequence) -> tuple[int, int]:
    """Its place among those of its caller."""
    return sequence.spec.terms.priority, sequence.key
