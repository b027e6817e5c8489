"""Which sequence kills the gang? Found with few deaths, and without harm to those that only stood beside it. Pure.

    free --in flight at a death--> suspect --at a second one--> on probation --two deaths alone, no progress between--> verdict
      ^                               |                             |
      '--- its steps have passed the place where it became suspect -'

Only deaths that a computation can have caused are asked about: a crash, a fault, a hang, no memory left. A gang of which a
rank was killed from elsewhere tells nothing of anybody, however often that happens; `is_evidence` draws the line.

A first death costs nothing. From the second death in a row at the same place on, a sequence is computed with nothing beside
it, one step at a time, the most suspicious one first, while all others wait; it needs to come no further than where the gang
died, so the wait is bounded by what was in flight there. Only deaths on probation lead to a verdict, because only these are
certain; any position more that was computed between two of them starts the count again. So a poison costs four deaths, and
a machine that fails now and then condemns nobody who gets on at all.

A plan that is refused is like a death, with two differences: nothing died, and if one sequence alone is named, it is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from actors.scheduler.batch_planner import Row
from actors.scheduler.policy import AdmissionOrder
from actors.scheduler.sequence import Sequence, State
from messages.lifecycle import Cause

_DEATHS_TO_PROBATION = 2
_CERTAIN_DEATHS = 2


@dataclass
class _Suspicion:
    """What is held against one sequence."""

    sequence: Sequence
    reach: int  # positions that were computed or on their way when the gang died: beyond them it is innocent
    deaths: int = 0
    certain: int = 0  # deaths that nobody else can have caused, in a row and without progress
    passed: int = 0  # positions computed since it became suspect
    passed_before: int = 0  # the same at its last certain death

    @property
    def is_on_probation(self) -> bool:
        """Must it be computed alone?"""
        return self.deaths >= _DEATHS_TO_PROBATION or self.certain > 0


@dataclass(frozen=True)
class Verdict:
    """This sequence ends, for this reason."""

    sequence: Sequence
    reason: Literal["quarantined", "failed"]
    detail: str


def is_evidence(causes: Iterable[Cause]) -> bool:
    """Can what the gang computed have killed it? `causes`: how its ranks died. One that somebody killed is enough for a no:
    the deaths of the others follow from it (an error in a collective, a kill by the supervisor)."""
    return "killed" not in causes


class Probation:
    """See the file's header."""

    def __init__(self, order: AdmissionOrder) -> None:
        self._order = order
        self._suspicions: dict[int, _Suspicion] = {}  # by sequence number
        self.is_active = False  # is anybody on probation?

    def __len__(self) -> int:
        return sum(suspicion.is_on_probation for suspicion in self._suspicions.values())

    @property
    def has_suspects(self) -> bool:
        """Is anything held against anybody?"""
        return bool(self._suspicions)

    def holds(self, sequence: Sequence) -> bool:
        """Is this sequence on probation?"""
        suspicion = self._suspicions.get(sequence.number)
        return suspicion is not None and suspicion.is_on_probation

    def next_alone(self, may_run: Callable[[Sequence], bool]) -> Sequence | None:
        """Whom the next step computes with nothing beside it; None when nobody on probation may run."""
        ready = [s for s in self._suspicions.values() if s.is_on_probation and may_run(s.sequence)]
        first = min(ready, key=lambda s: (-s.certain, self._order.key(s.sequence)), default=None)
        return first.sequence if first is not None else None

    # -- what happened ---------------------------------------------------------------------------------------------

    def gang_died(self, in_flight: list[tuple[Row, int]]) -> list[Verdict]:
        """The gang is dead, perhaps of these. `in_flight`: every row on its way, and the positions it would have completed."""
        reaches = _reaches(in_flight)
        is_certain = len(reaches) == 1 and self.holds(reaches[0][0])
        condemned = self._blame(reaches, is_certain)
        detail = "workers died {} times while they computed this sequence, {} times with nothing beside it"
        return [Verdict(s.sequence, "quarantined", detail.format(s.deaths, s.certain)) for s in condemned]

    def plan_refused(self, suspects: list[tuple[Row, int]], reason: str) -> list[Verdict]:
        """The gang has refused a plan because of these rows, and has done nothing of it."""
        reaches = _reaches(suspects)
        return [Verdict(s.sequence, "failed", reason) for s in self._blame(reaches, len(reaches) == 1)]

    def computed(self, rows: list[tuple[Row, int]]) -> None:
        """A step has ended well: who has come past the place where it became suspect is free."""
        for row, stop in rows:
            suspicion = self._suspicions.get(row.sequence.number)
            if suspicion is None or row.life != row.sequence.life:
                continue
            suspicion.passed = max(suspicion.passed, row.sequence.planned if row.drafts else stop)
            if suspicion.passed >= suspicion.reach:
                self.forget(row.sequence)

    def forget(self, sequence: Sequence) -> None:
        """It is free, or over."""
        if self._suspicions.pop(sequence.number, None) is not None:
            self._update()

    def _blame(self, reaches: list[tuple[Sequence, int]], is_certain: bool) -> list[_Suspicion]:
        condemned = []
        for sequence, reach in reaches:
            suspicion = self._suspicions.setdefault(sequence.number, _Suspicion(sequence, reach))
            suspicion.deaths += 1
            suspicion.reach = max(suspicion.reach, reach)
            if is_certain and reach > suspicion.passed:  # what was computed well before does not kill now
                has_come_on = suspicion.passed > suspicion.passed_before
                suspicion.certain = 1 if has_come_on else suspicion.certain + 1
                suspicion.passed_before = suspicion.passed
            if suspicion.certain >= _CERTAIN_DEATHS:
                condemned.append(suspicion)
        self._update()
        return condemned

    def _update(self) -> None:
        self.is_active = any(suspicion.is_on_probation for suspicion in self._suspicions.values())


def _reaches(rows: list[tuple[Row, int]]) -> list[tuple[Sequence, int]]:
    """Each sequence of these rows that has not ended, and how far they would have brought it."""
    reach_of: dict[int, tuple[Sequence, int]] = {}
    for row, stop in rows:
        if row.sequence.state is not State.ENDED:
            _, before = reach_of.get(row.sequence.number, (None, 0))
            reach_of[row.sequence.number] = (row.sequence, max(before, stop))
    return list(reach_of.values())
