"""Which replicas can compute, as reported by their schedulers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from messages.generation.replica_state import ReplicaCondition

_BEST_FIRST = (ReplicaCondition.UP, ReplicaCondition.DOWN, ReplicaCondition.SICK)


@dataclass
class _Told:
    """What a scheduler has reported about its replica."""

    condition: ReplicaCondition
    number: int  # of this change; a timer of an earlier one means nothing
    is_lasting: bool  # it is out for so long that its sequences should leave it


class Replicas:
    """The conditions of all replicas, by the names of their schedulers. A replica without a report counts as up."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        self._n_changes = 0

    def condition(self, name: str) -> ReplicaCondition:
        """The condition of one replica."""
        told = self._told.get(name)
        return ReplicaCondition.UP if told is None else told.condition

    def note(self, name: str, condition: ReplicaCondition) -> int:
        """A scheduler has reported its replica's condition. Returns the number of the change; 0 if nothing has changed."""
        told = self._told.get(name)
        if told is not None and told.condition is condition:
            return 0
        self._n_changes += 1
        self._told[name] = _Told(condition, self._n_changes, condition is ReplicaCondition.SICK)
        return self._n_changes

    def lasts(self, name: str, number: int) -> bool:
        """The grace after change `number` is over. Returns True if that replica has not changed since."""
        told = self._told.get(name)
        if told is None or told.number != number:
            return False
        told.is_lasting = True
        return True

    def remove(self, name: str) -> None:
        """A scheduler is dead or new: nothing is known of its replica."""
        self._told.pop(name, None)

    def candidates(self, living: Collection[str]) -> list[str]:
        """The schedulers that new attempts may go to: of those living, the ones in the best condition."""
        told = self._told
        if not [name for name in living if name in told and told[name].condition is not ReplicaCondition.UP]:
            return list(living)
        conditions = {name: self.condition(name) for name in living}
        best = next((c for c in _BEST_FIRST if c in conditions.values()), None)
        return [name for name, condition in conditions.items() if condition is best]

    def to_leave(self, living: Iterable[str]) -> list[str]:
        """The schedulers that sequences should leave now: out for long enough, while another one is up."""
        names = list(living)
        if not any(self.condition(name) is ReplicaCondition.UP for name in names):
            return []
        told = self._told
        return [n for n in names if n in told and told[n].is_lasting and told[n].condition is not ReplicaCondition.UP]
