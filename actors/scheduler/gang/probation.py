"""Finds the sequence that kills the gang, with few deaths and without harm to the other sequences. Pure.

    free --in flight at a death--> suspect --at a second one--> on probation --two deaths alone, no progress--> quarantined
      ^                               |                             |
      '------ computed past the positions that were in flight ------'

Only deaths that a computation can have caused count: a crash, a fault, a hang, no memory left. When a rank was killed from
outside, the death says nothing about any sequence (`is_evidence`).

A first death has no consequence. From the second death on, a suspect is computed alone, one step at a time, while all others
wait; the sequence with the most deaths comes first. It is free once it has been computed past the positions that were in
flight at the death, so the others wait for a bounded time. Only a death on probation proves anything, because nothing else was
computed; progress between two of them starts the count again. So a poisonous sequence is quarantined after four gang deaths, or
after three if it was alone at all of them: two faults of a device can meet one sequence by chance. One that makes progress
between deaths never is.

A refused plan counts like a death. If it names a single sequence, that sequence is proven to be the cause.

After each death that counts, and after each refusal that names no sequence, a built-in step is computed first (`canary.py`). If
the gang dies of that, or refuses it, the device is at fault, and all suspects are cleared. So a second certain death proves
something: the gang had just shown that it can compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from actors.scheduler.planning.rows.row import RowEnd
from actors.scheduler.sequences.policy import SchedulingPolicy
from actors.scheduler.sequences.sequence import Sequence, State
from messages.generation.replica_state import Suspect
from messages.generation.sequences import Suspicion
from messages.lifecycle.lifecycle import Cause

_DEATHS_TO_PROBATION = 2
_NO_EVIDENCE: frozenset[Cause] = frozenset(("killed", "ended"))
_CERTAIN_DEATHS = 2
_LEAST_DEATHS = 3  # before a sequence is judged that no refusal has named


@dataclass
class _Suspicion:
    """The deaths that one sequence may have caused."""

    sequence: Sequence
    reach: int  # positions computed or in flight at the deaths: once it has been computed past them it is free
    deaths: int = 0
    certain: int = 0  # deaths that no other sequence can have caused, in a row and without progress
    passed: int = 0  # positions computed since it became suspect
    passed_before: int = 0  # `passed` at its last certain death

    @property
    def is_on_probation(self) -> bool:
        """True if it must be computed alone."""
        return self.deaths >= _DEATHS_TO_PROBATION or self.certain > 0

    @property
    def part(self) -> Suspicion:
        """What another replica needs to know of it."""
        certain = self.certain if self.passed == self.passed_before else 0
        return Suspicion(deaths=self.deaths, certain=certain, reach=self.reach, passed=self.passed)


@dataclass(frozen=True)
class ForcedEnding:
    """A sequence that must end, and why."""

    sequence: Sequence
    reason: Literal["quarantined", "failed"]
    detail: str


def is_evidence(causes: Iterable[Cause]) -> bool:
    """True if a computation may have killed the gang. `causes`: how its ranks died. If one rank was killed from outside, or
    stopped as ordered, the other deaths followed from that (an error in a collective, a kill by the supervisor)."""
    return _NO_EVIDENCE.isdisjoint(causes)


class Probation:
    """The suspects of one gang. `policy` decides between sequences on probation with equally many deaths."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._suspicions: dict[int, _Suspicion] = {}  # by sequence number
        self.is_active = False  # True while any sequence is on probation

    def __len__(self) -> int:
        return sum(suspicion.is_on_probation for suspicion in self._suspicions.values())

    @property
    def requests(self) -> list[str]:
        """The ids of the requests whose sequences are on probation, one for each of these sequences."""
        return [suspicion.sequence.request for suspicion in self._suspicions.values() if suspicion.is_on_probation]

    @property
    def has_suspects(self) -> bool:
        """True if any sequence is suspect or on probation."""
        return bool(self._suspicions)

    def is_on_probation(self, sequence: Sequence) -> bool:
        """True if this sequence is on probation."""
        suspicion = self._suspicions.get(sequence.number)
        return suspicion is not None and suspicion.is_on_probation

    def next_alone(self, may_run: Callable[[Sequence], bool]) -> Sequence | None:
        """The sequence that the next step computes alone; None when no sequence on probation may run."""
        ready = [s for s in self._suspicions.values() if s.is_on_probation and may_run(s.sequence)]
        first = min(ready, key=lambda s: (-s.certain, self._policy.key(s.sequence)), default=None)
        return first.sequence if first is not None else None

    def suspects_of(self, gateway: str) -> list[Suspect]:
        """The suspects among the sequences of one gateway."""
        mine = [s for s in self._suspicions.values() if s.sequence.gateway == gateway]
        return [Suspect(attempt=s.sequence.attempt, suspicion=s.part) for s in mine]

    # -- events ---------------------------------------------------------------------------------------------

    def arrived(self, sequence: Sequence, before: Suspicion) -> None:
        """A sequence has come that was suspect at another replica."""
        deaths, certain, reach, passed = int(before.deaths), int(before.certain), int(before.reach), int(before.passed)
        self._suspicions[sequence.number] = _Suspicion(sequence, reach, deaths, certain, passed, passed)
        self._update()

    def clear_all(self) -> None:
        """The device was at fault: no sequence is suspect any more."""
        self._suspicions.clear()
        self._update()

    def gang_died(self, in_flight: list[RowEnd]) -> list[ForcedEnding]:
        """The gang has died. `in_flight`: every row in flight, and the number of positions that it would have completed.

        Returns: the sequences that must end.
        """
        reaches = _reaches(in_flight)
        is_certain = len(reaches) == 1 and self.is_on_probation(reaches[0][0])
        blamed = self._blame(reaches, is_certain, _LEAST_DEATHS)
        detail = "workers died {} times while they computed this sequence, {} times with nothing beside it"
        return [ForcedEnding(s.sequence, "quarantined", detail.format(s.deaths, s.certain)) for s in blamed]

    def plan_refused(self, suspects: list[RowEnd], reason: str, *, are_named: bool) -> list[ForcedEnding]:
        """The gang has refused a plan because of these rows, and has computed nothing of it. `are_named`: it has said so.

        Returns: the sequences that must end.
        """
        reaches = _reaches(suspects)
        blamed = self._blame(reaches, len(reaches) == 1, 0 if are_named else _LEAST_DEATHS)
        return [ForcedEnding(s.sequence, "failed", reason) for s in blamed]

    def computed(self, rows: list[RowEnd]) -> None:
        """A step has succeeded. Frees the suspects that it has computed past their reach."""
        for row, stop in rows:
            suspicion = self._suspicions.get(row.sequence.number)
            if suspicion is None or row.stay != row.sequence.stay:
                continue
            suspicion.passed = max(suspicion.passed, row.sequence.planned if row.drafts else stop)
            if suspicion.passed >= suspicion.reach:
                self.clear(row.sequence)

    def clear(self, sequence: Sequence) -> None:
        """Remove a sequence that is free or has ended."""
        if self._suspicions.pop(sequence.number, None) is not None:
            self._update()

    def _blame(self, reaches: list[tuple[Sequence, int]], is_certain: bool, least_deaths: int) -> list[_Suspicion]:
        blamed = []
        for sequence, reach in reaches:
            suspicion = self._suspicions.setdefault(sequence.number, _Suspicion(sequence, reach))
            suspicion.deaths += 1
            suspicion.reach = max(suspicion.reach, reach)
            if is_certain and reach > suspicion.passed:  # positions that were computed once do not kill
                has_progressed = suspicion.passed > suspicion.passed_before
                suspicion.certain = 1 if has_progressed else suspicion.certain + 1
                suspicion.passed_before = suspicion.passed
            if suspicion.certain >= _CERTAIN_DEATHS and suspicion.deaths >= least_deaths:
                blamed.append(suspicion)
        self._update()
        return blamed

    def _update(self) -> None:
        self.is_active = any(suspicion.is_on_probation for suspicion in self._suspicions.values())


def _reaches(rows: list[RowEnd]) -> list[tuple[Sequence, int]]:
    """Each sequence of these rows that has not ended, and the positions that would have been completed."""
    reach_of: dict[int, tuple[Sequence, int]] = {}
    for row, stop in rows:
        if row.sequence.state is not State.ENDED:
            _, before = reach_of.get(row.sequence.number, (None, 0))
            reach_of[row.sequence.number] = (row.sequence, max(before, stop))
    return list(reach_of.values())
