"""Fair shares: callers get tokens in proportion to their weights, while they have something to compute.

Each caller has a counter of the tokens that it was given, divided by its weight; the caller with the lowest counter is next
(virtual token counters, Sheng et al., OSDI 2024). A caller that comes back is lifted to the lowest counter of those that wait,
so nobody saves up for a burst, and where nobody waits, all counters are made equal. When no slot is free, a caller that holds
less than its share of the running sequences displaces one of a caller that holds more. The counters are lost with their
scheduler: then all begin again at 0.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Values
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from actors.scheduler.sequences.policy import Key, PolicyName, SchedulingPolicy, VictimChoice, WaitingQueue
from messages.steps import PAGE_TOKENS

if TYPE_CHECKING:
    from actors.scheduler.sequences.sequence import Sequence

_caller_of = attrgetter("terms.caller")
_counter = attrgetter("counter")
_LEAST_WEIGHT = 1e-3
_MOST_CALLERS = 4096  # remembered while they have nothing to compute
_HIGHEST = 1e12  # a counter that is reached: all are lowered


@dataclass(eq=False, slots=True)
class _CallerShare:
    """What one caller has and was given."""

    caller: bytes
    per_token: float = 1.0  # 1 / weight
    counter: float = 0.0  # tokens / weight
    waiting: list[Sequence] = field(default_factory=list)
    n_sequences: int = 0  # that have not ended
    n_running: int = 0


class FairPolicy(SchedulingPolicy):
    """The caller with the lowest counter first; its own sequences by priority, then by arrival."""

    name = PolicyName.FAIR
    counts = True
    displaces = True

    def __init__(self) -> None:
        self._shares: dict[bytes, _CallerShare] = {}
        self._n_running = 0
        self._n_computed: dict[int, int] = {}  # positions of sequences that have left their slot, by number
        self._floor = 0.0  # where a caller begins that has not waited
        self._queue = _FairQueue(self)
        self.victims = _HighestCaller(self)

    def key(self, sequence: Sequence) -> Key:
        return self.share_of(sequence).counter, *_own_key(sequence)

    def short_key(self, sequence: Sequence) -> Key:
        return self.share_of(sequence).counter, sequence.n_unplanned, sequence.number

    def running_key(self, sequence: Sequence) -> Key:
        return (sequence.number,)

    def make_queue(self) -> WaitingQueue:
        return self._queue

    def share_of(self, sequence: Sequence) -> _CallerShare:
        """The share of the caller of a sequence that has not ended."""
        return self._shares[sequence.terms.caller]

    @property
    def active(self) -> Iterable[_CallerShare]:
        """The shares of all callers that are known."""
        return self._shares.values()

    def arrived(self, sequence: Sequence) -> None:
        caller = sequence.terms.caller
        share = self._shares.get(caller)
        if share is None:
            self._forget_idle()
            share = self._shares[caller] = _CallerShare(caller)
        share.per_token = 1.0 / max(sequence.terms.weight, _LEAST_WEIGHT)
        share.n_sequences += 1
        if not share.waiting:
            self._lift(share)

    def ended(self, sequence: Sequence) -> None:
        self.share_of(sequence).n_sequences -= 1
        self._n_computed.pop(sequence.number, None)

    def started(self, sequence: Sequence) -> None:
        self.share_of(sequence).n_running += 1
        self._n_running += 1

    def stopped(self, sequence: Sequence) -> None:
        share = self.share_of(sequence)
        share.n_running -= 1
        self._n_running -= 1
        # what giving way costs is not counted again: tokens in flight, and the last page if it is not full. Whole pages stay
        # cached; those that others have needed count, or somebody with long prompts could have them computed for nothing
        share.counter -= max(sequence.planned - sequence.known, 0) * share.per_token
        self._n_computed[sequence.number] = min(sequence.planned, sequence.known)

    def planned(self, sequences: Values[Sequence], counts: Values[int], n_more: int) -> None:
        n_steps = 1 + n_more
        for share, n_rows in self._rows_by_share(sequences):  # most rows are of one token
            share.counter += n_rows * n_steps * share.per_token
        if sum(counts) == len(counts):
            return
        for sequence, count in zip(sequences, counts, strict=True):
            if count != 1:
                share = self.share_of(sequence)
                again = self._n_computed.pop(sequence.number, 0) - (sequence.planned - count)
                share.counter += (count - 1 - min(max(again, 0), count, PAGE_TOKENS)) * share.per_token

    def _rows_by_share(self, sequences: Values[Sequence]) -> Iterable[tuple[_CallerShare, int]]:
        """How many rows each caller has. A plan has one row for a sequence at most, so most plans have one for each."""
        if len(sequences) == self._n_running:
            return [(share, share.n_running) for share in self._shares.values() if share.n_running]
        return [(self._shares[caller], n_rows) for caller, n_rows in Counter(map(_caller_of, sequences)).items()]

    def victim_for(self, waiting: Sequence, running: Values[Sequence], may_give: Callable[[Sequence], bool]) -> Sequence | None:
        mine = self.share_of(waiting)
        most, most_slots = mine, -1.0  # by weight; a loop, because each plan with a queue and no free slot comes here
        for share in self._shares.values():
            if (slots := share.n_running * share.per_token) > most_slots:
                most, most_slots = share, slots
        if most is mine or most.counter < mine.counter:
            return None
        if (most.n_running - 1) * most.per_token < (mine.n_running + 1) * mine.per_token:
            return None  # they would only change their places
        return next((s for s in reversed(running) if s.terms.caller == most.caller and may_give(s)), None)

    def _lift(self, share: _CallerShare) -> None:
        """A caller waits again. Where nobody else does, all have got what they asked for: nobody has saved up anything, and
        what somebody got meanwhile is no debt."""
        if counters := self._waiting_counters():
            self._floor = max(self._floor, min(counters))
            share.counter = max(share.counter, self._floor)
            return
        self.lift_floor(max(map(_counter, self._shares.values())))
        floor = self._floor
        for one in self._shares.values():
            one.counter = floor

    def left(self, share: _CallerShare) -> None:
        """Nothing of a caller waits any more. It need not have been served: clients leave, and gateways take back what waits.
        So its counter may be far above those of others that wait, and who comes next must not begin there."""
        self.lift_floor(min([share.counter, *self._waiting_counters()]))

    def _waiting_counters(self) -> list[float]:
        return [one.counter for one in self._shares.values() if one.waiting]

    def lift_floor(self, counter: float) -> None:
        """Callers with this counter have had their turn."""
        self._floor = max(self._floor, counter)
        if self._floor > _HIGHEST:
            for share in self._shares.values():
                share.counter = max(share.counter - self._floor, 0.0)
            self._floor = 0.0

    def _forget_idle(self) -> None:
        """Forget callers that have nothing to compute, once there are too many: those with the lowest counters."""
        if len(self._shares) < _MOST_CALLERS:
            return
        idle = sorted((one for one in self._shares.values() if not one.n_sequences), key=lambda one: one.counter)
        for share in idle[: max(len(idle) // 2, 1)]:
            del self._shares[share.caller]


class _FairQueue(WaitingQueue):
    """The waiting sequences by caller."""

    def __init__(self, policy: FairPolicy) -> None:
        self._policy = policy
        self._n_waiting = 0

    def add(self, sequence: Sequence) -> None:
        insort(self._policy.share_of(sequence).waiting, sequence, key=_own_key)
        self._n_waiting += 1

    def remove(self, sequence: Sequence, /) -> None:
        share = self._policy.share_of(sequence)
        share.waiting.remove(sequence)
        self._n_waiting -= 1
        if not share.waiting:
            self._policy.left(share)

    def first(self, n: int) -> list[Sequence]:
        if n == 1 and self._n_waiting:
            return min([share for share in self._policy.active if share.waiting], key=_counter).waiting[:1]
        return list(islice(self, n)) if n else []

    def without(self, first: Values[Sequence]) -> Iterator[Sequence]:
        known = {sequence.number for sequence in first}
        yield from [sequence for sequence in self if sequence.number not in known]

    def __len__(self) -> int:
        return self._n_waiting

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences, as if each prompt were computed when its turn comes. The queue must not change meanwhile."""
        shares = [share for share in self._policy.active if share.waiting]
        heap = [(share.counter, index, 0) for index, share in enumerate(shares)]
        heapq.heapify(heap)
        while heap:
            counter, index, at = heap[0]
            share = shares[index]
            yield share.waiting[at]
            if at + 1 < len(share.waiting):
                heapq.heapreplace(heap, (counter + share.waiting[at].known * share.per_token, index, at + 1))
            else:
                heapq.heappop(heap)


class _HighestCaller(VictimChoice):
    """The newest sequence of the caller with the highest counter. The oldest of all is never preempted while another one can
    be, so in the end every sequence finishes."""

    def __init__(self, policy: FairPolicy) -> None:
        self._policy = policy

    def choose(self, running: Values[Sequence], has_row: Callable[[Sequence], bool]) -> Sequence | None:
        free = [sequence for sequence in running if not has_row(sequence)]
        younger = free[1:] if free and free[0] is running[0] else free
        counter = lambda sequence: (self._policy.share_of(sequence).counter, sequence.number)  # noqa: E731
        return max(younger or free, key=counter, default=None)


def _own_key(sequence: Sequence) -> tuple[int, int]:
    return sequence.terms.priority, sequence.number
