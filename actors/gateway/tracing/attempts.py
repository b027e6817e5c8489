"""What happened to the attempts of traced requests: which ended and why, and when the gang of their replica was gone. Pure.

An attempt is noted when it is closed. Whether it was the last one, which ends in order, is known only at the end of its
request: another attempt has a higher ordinal. All times are the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from actors.gateway.requests.request import GrowingSequence, Request

_MOST_NOTES = 64  # of one request, of each kind


class LossCause(StrEnum):
    """Why a sequence was submitted again."""

    SCHEDULER = "scheduler_died"
    GANG = "gang_died"  # the ranks of the replica
    GATEWAY = "gateway_died"  # the attempts of a dead gateway end with it
    MOVED = "moved"  # refused for now, moved off a replica, or lost between living processes


class ClosedAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
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


class AttemptLog:
    """What is noted of all traced requests that are running, by their numbers."""

    def __init__(self, now_s: Callable[[], float], cause_of: Callable[[str], LossCause]) -> None:
        """`cause_of`: why an attempt at this scheduler would be lost at this moment."""
        self._now_s, self._cause_of = now_s, cause_of
        self.began_s = now_s()  # requests of an earlier incarnation are taken over at that time
        self._closed: dict[int, list[ClosedAttempt]] = {}
        self._outages: dict[int, list[Outage]] = {}
        self._gone: dict[str, Outage] = {}  # by scheduler: the gangs that are gone now

    def closing(self, sequence: GrowingSequence) -> None:
        """The open attempt of a sequence is about to be closed."""
        request = sequence.request
        if not is_traced(request):
            return
        name = sequence.scheduler
        one = ClosedAttempt(
            sequence.index, sequence.n_submissions, name, self._now_s(), self._cause_of(name), len(sequence.ids)
        )
        if (closed := self._closed.get(request.number)) is None:
            self._closed[request.number] = [one]
        elif len(closed) < _MOST_NOTES:
            closed.append(one)

    def gang_is_gone(self, scheduler: str, sequences: Iterable[GrowingSequence]) -> None:
        """The gang of a replica is gone. `sequences`: what is there."""
        if scheduler in self._gone:
            return
        outage = self._gone[scheduler] = Outage(scheduler, self._now_s())
        for request in {sequence.request.number: sequence.request for sequence in sequences}.values():
            if is_traced(request) and len(outages := self._outages.setdefault(request.number, [])) < _MOST_NOTES:
                outages.append(outage)

    def gang_is_back(self, scheduler: str) -> None:
        """The gang of a replica computes again."""
        outage = self._gone.pop(scheduler, None)
        if outage is not None:
            outage.ended_s = self._now_s()

    def take(self, request: Request) -> tuple[list[ClosedAttempt], list[Outage]]:
        """What is noted of a request that is over, which is kept no longer."""
        return self._closed.pop(request.number, []), self._outages.pop(request.number, [])

    def __len__(self) -> int:
        return len(self._closed) + len(self._outages)


def is_traced(request: Request) -> bool:
    """True if the spans of a request are recorded."""
    trace = request.spec.trace
    return trace is not None and trace.span_id != b""
