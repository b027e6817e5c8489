"""What happened to the attempts of traced requests: which ended and why, and when the gang of their replica was gone. Pure.

An attempt is noted when it is closed. Whether it was the last one, which ends in order, is known only at the end of its
request: another attempt has a higher ordinal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from actors.gateway.requests.request import GrowingSequence, Request

_MOST_NOTES = 64  # of one request; later ones are counted alone


class LossCause(StrEnum):
    """Why a sequence was submitted again."""

    SCHEDULER = "scheduler_died"
    GANG = "gang_died"  # the ranks of the replica
    GATEWAY = "gateway_died"  # the attempts of a dead gateway end with it
    MOVED = "moved"  # refused for now, moved off a replica, or lost between living processes


@dataclass(frozen=True, slots=True)
class ClosedAttempt:
    """An attempt that is over. `ordinal`: 1 is the first submission of the sequence. `n_tokens`: what the sequence had then."""

    index: int
    ordinal: int
    scheduler: str
    ended_s: float
    cause: LossCause
    n_tokens: int


@dataclass(slots=True)
class Outage:
    """The gang of a replica was gone while a request was there. `ended_s` 0: it is."""

    scheduler: str
    began_s: float
    ended_s: float = 0.0


@dataclass(slots=True)
class AttemptNotes:
    """What is known of one request."""

    closed: list[ClosedAttempt] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    n_left_out: int = 0
    resumed_s: float = 0.0  # when this gateway took the request over from a dead one; 0: it has admitted it

    def lost(self, request: Request) -> list[ClosedAttempt]:
        """The attempts that another one followed."""
        return [one for one in self.closed if one.ordinal < request.sequences[one.index].n_submissions]


class AttemptLog:
    """The notes of all traced requests that are running, by their numbers."""

    def __init__(self, now_s: Callable[[], float], cause_of: Callable[[str], LossCause]) -> None:
        """`cause_of`: why an attempt at this scheduler would be lost at this moment."""
        self._now_s, self._cause_of = now_s, cause_of
        self._began_s = now_s()  # requests of an earlier incarnation are taken over at that time
        self._notes: dict[int, AttemptNotes] = {}
        self._outages: dict[str, Outage] = {}  # by scheduler

    def closing(self, sequence: GrowingSequence) -> None:
        """The open attempt of a sequence is about to be closed."""
        request = sequence.request
        if not is_traced(request):
            return
        notes = self._of(request)
        if len(notes.closed) >= _MOST_NOTES:
            notes.n_left_out += 1
            return
        name = sequence.scheduler
        cause, n_tokens = self._cause_of(name), len(sequence.ids)
        notes.closed.append(ClosedAttempt(sequence.index, sequence.n_submissions, name, self._now_s(), cause, n_tokens))

    def gang_is_gone(self, scheduler: str, sequences: Iterable[GrowingSequence]) -> None:
        """The gang of a replica is gone. `sequences`: what is there."""
        if scheduler in self._outages:
            return
        outage = self._outages[scheduler] = Outage(scheduler, self._now_s())
        for request in {sequence.request.number: sequence.request for sequence in sequences}.values():
            if is_traced(request) and len((notes := self._of(request)).outages) < _MOST_NOTES:
                notes.outages.append(outage)

    def gang_is_back(self, scheduler: str) -> None:
        """The gang of a replica computes again, or its scheduler is dead or new."""
        outage = self._outages.pop(scheduler, None)
        if outage is not None:
            outage.ended_s = self._now_s()

    def take(self, request: Request) -> AttemptNotes:
        """The notes of a request that is over, which are kept no longer."""
        notes = self._notes.pop(request.number, None) or AttemptNotes()
        if request.n_restored_items is not None:
            notes.resumed_s = self._began_s
        return notes

    def _of(self, request: Request) -> AttemptNotes:
        notes = self._notes.get(request.number)
        if notes is None:
            notes = self._notes[request.number] = AttemptNotes()
        return notes

    def __len__(self) -> int:
        return len(self._notes)


def is_traced(request: Request) -> bool:
    """True if the spans of a request are recorded."""
    trace = request.spec.trace
    return trace is not None and bool(trace.span_id)
