"""Which replicas can compute, as reported by their schedulers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from messages.generation.replica_state import ReplicaCondition
from messages.ids import actor_name, memory_owner, model_of, replica_of
from messages.lifecycle.cordon import Cordon

_BEST_FIRST = (ReplicaCondition.UP, ReplicaCondition.DOWN, ReplicaCondition.SICK)


@dataclass
class _Report:
    """What a scheduler has reported about its replica."""

    condition: ReplicaCondition
    number: int  # of this change; a timer of an earlier one means nothing
    is_lasting: bool  # it is out for so long that its sequences should leave it


def of_model(schedulers: Iterable[str], model: int) -> list[str]:
    """Those of these schedulers whose replicas serve this model."""
    return [name for name in schedulers if model_of(name) == model]


class Replicas:
    """The conditions of all replicas, by the names of their schedulers. A replica without a report counts as up."""

    def __init__(self) -> None:
        self._reports: dict[str, _Report] = {}
        self._n_changes = 0
        self.version = 0  # rises whenever `candidates` may change
        self._cordons: dict[str, Cordon] = {}

    def set_cordons(self, cordons: Iterable[Cordon]) -> bool:
        """An operator wants no new sequences at these replicas, and at no others. Returns False if that was known."""
        self.version += 1
        before, self._cordons = self._cordons, {actor_name("scheduler", cordon.replica): cordon for cordon in cordons}
        return self._cordons != before

    def is_cordoned(self, name: str) -> bool:
        """True if an operator has taken this replica out of use."""
        return name in self._cordons

    @property
    def draining(self) -> list[str]:
        """The schedulers whose sequences should leave."""
        return [name for name, cordon in self._cordons.items() if cordon.is_draining]

    def is_overdue(self, name: str, now_s: float) -> bool:
        """True if the drain of a replica has lasted too long: what runs there leaves too. `now_s`: the monotonic clock."""
        return name in self._cordons and now_s >= self._cordons[name].end_s

    def is_usable(self, name: str) -> bool:
        """True if new sequences may go to this replica and can be computed there now."""
        return name not in self._cordons and self.condition(name) is ReplicaCondition.UP

    def condition(self, name: str) -> ReplicaCondition:
        """The condition of one replica."""
        report = self._reports.get(name)
        return ReplicaCondition.UP if report is None else report.condition

    def note(self, name: str, condition: ReplicaCondition) -> int:
        """A scheduler has reported its replica's condition. Returns the number of the change; 0 if nothing has changed."""
        report = self._reports.get(name)
        if report is not None and report.condition is condition:
            return 0
        self._n_changes += 1
        self.version += 1
        self._reports[name] = _Report(condition, self._n_changes, condition is ReplicaCondition.SICK)
        return self._n_changes

    def end_grace(self, name: str, number: int) -> bool:
        """End the grace after change `number`. Returns True if the replica has not changed since; its condition then counts as
        lasting."""
        report = self._reports.get(name)
        if report is None or report.number != number:
            return False
        report.is_lasting = True
        return True

    def remove(self, name: str) -> None:
        """A scheduler is dead or new: nothing is known of its replica."""
        self.version += 1
        self._reports.pop(name, None)

    def candidates(self, living: Collection[str]) -> list[str]:
        """The schedulers that new attempts may go to: of those living and not cordoned, the ones in the best condition."""
        report = self._reports
        if self._cordons:
            living = [name for name in living if name not in self._cordons]
        if not [name for name in living if name in report and report[name].condition is not ReplicaCondition.UP]:
            return list(living)
        conditions = {name: self.condition(name) for name in living}
        best = next((c for c in _BEST_FIRST if c in conditions.values()), None)
        return [name for name, condition in conditions.items() if condition is best]

    def to_leave(self, living: Iterable[str]) -> list[str]:
        """The schedulers that sequences should leave now: out for long enough, while another one of their model is up."""
        names = list(living)
        models = {model_of(name) for name in names if self.is_usable(name)}
        found = [name for name in names if model_of(name) in models and name in self._reports]
        return [n for n in found if self._reports[n].is_lasting and self._reports[n].condition is not ReplicaCondition.UP]

    def ready(self, schedulers: Iterable[str], ranks: Iterable[str], model: int) -> list[str]:
        """Those of the living schedulers whose replicas serve this model and compute now: they are up, and their first rank is
        one of the living `ranks`."""
        in_either_seat = {memory_owner(name) for name in ranks}
        return [
            name
            for name in of_model(schedulers, model)
            if self.is_usable(name) and actor_name("worker", replica_of(name), 0) in in_either_seat
        ]
