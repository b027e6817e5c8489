"""By deadlines: who has to start first is first, and who cannot be in time any more makes room for those who can.

A sequence with `ttft_ms` or `deadline_ms` has a latest start: the deadline without the time that its prompt and its answer
take. The prompt's time comes from measured steps; the answer's from the time between tokens of sequences that have ended, and
from the part of `max_tokens` that they used. One without such terms is due `_PATIENCE_S` after its arrival, and so is one that
has turned out to be late. So nothing starves, and late ones keep nobody from being in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Values
from typing import TYPE_CHECKING

from actors.scheduler.sequences.policy import Key, PolicyName, SchedulingPolicy, SortedQueue, StepEstimates, WaitingQueue

if TYPE_CHECKING:
    from actors.scheduler.sequences.sequence import Sequence

_PATIENCE_S = 60.0  # after its arrival a sequence without a deadline comes before those that are due later
_SMOOTHING = 16  # sequences whose times are averaged
_SOON_S = 0.2  # so long before its latest start a sequence may displace another one
_SLACK_S = 5.0  # so much longer than it needs a sequence with a deadline must have, to be displaced
_MS = 1e-3


class SlaPolicy(SchedulingPolicy):
    """The least latest start first. `now_s`: the clock of the timelines."""

    name = PolicyName.SLA
    displaces = True

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._estimates: StepEstimates | None = None
        self._due_s: dict[int, float] = {}  # the latest starts, by number
        self._deadline_s: dict[int, float] = {}  # of whole answers, by number
        self._has_terms: set[int] = set()  # numbers of sequences with a deadline that can still be met
        self._token_s = 0.0  # between two tokens, of the last sequences that have ended
        self._wait_s = 0.0  # from the slot to the first token, beyond the prompt's own time, of the same
        self._used = 1.0  # part of `max_tokens`, of the same
        self._n_doubts = 0  # sequences that were late when they came, since the last one was measured
        self._late: list[Sequence] = []
        self._queue = _DueQueue(self)

    def key(self, sequence: Sequence) -> Key:
        return self._due_s[sequence.number], sequence.number

    def short_key(self, sequence: Sequence) -> Key:
        return sequence.number not in self._has_terms, sequence.n_unplanned, sequence.number

    def make_queue(self) -> WaitingQueue:
        return self._queue

    def measured_by(self, estimates: StepEstimates) -> None:
        self._estimates = estimates

    def arrived(self, sequence: Sequence) -> None:
        latest_s = self._latest_start_s(sequence)
        if latest_s is None:
            self._due_s[sequence.number] = self._patient_s(sequence)
            return
        if latest_s < sequence.timeline.arrived_s:
            self._doubt()
        self._due_s[sequence.number] = latest_s
        self._has_terms.add(sequence.number)

    def ended(self, sequence: Sequence) -> None:
        del self._due_s[sequence.number]
        self._has_terms.discard(sequence.number)
        self._deadline_s.pop(sequence.number, None)
        began_s, n_tokens = sequence.timeline.first_token_s, sequence.n_generated
        if began_s:
            self._n_doubts = 0
            wait_s = max(began_s - sequence.timeline.started_s - self._prompt_s(sequence), 0.0)
            self._wait_s += (wait_s - self._wait_s) / (_SMOOTHING if wait_s < self._wait_s else _SMOOTHING // 4)
        if began_s and n_tokens > 1:
            token_s = (self._now_s() - began_s) / (n_tokens - 1)
            self._token_s += (token_s - self._token_s) / (_SMOOTHING if self._token_s else 1)
            self._used += (n_tokens / sequence.max_tokens - self._used) / _SMOOTHING

    def victim_for(self, waiting: Sequence, running: Values[Sequence], may_give: Callable[[Sequence], bool]) -> Sequence | None:
        is_soon = self._due_s[waiting.number] < self._now_s() + _SOON_S
        if waiting.number not in self._has_terms or not is_soon:
            return None
        slack_s, _, victim = max(((self._slack_s(s), s.number, s) for s in running if may_give(s)), default=(0.0, 0, None))
        return victim if slack_s > _SLACK_S else None

    def longest_step_s(self, running: Values[Sequence]) -> float:
        """The time between tokens with which the tightest of the running answers is still in time. Those that cannot be in time
        do not count."""
        now_s, fastest_s, longest_s = self._now_s(), self._token_s / 2, math.inf
        for sequence in running:
            if sequence.number in self._has_terms and sequence.n_unplanned <= 1:
                n_left = max(sequence.max_tokens * self._used - sequence.n_generated, 1.0)
                token_s = (self._deadline_s.get(sequence.number, math.inf) - now_s) / n_left
                if fastest_s < token_s < longest_s:
                    longest_s = token_s
        return longest_s

    def may_hurry(self, prompt: Sequence) -> bool:
        return prompt.number in self._has_terms and len(self._has_terms) < len(self._due_s)

    def is_urgent(self, prompt: Sequence, running: Sequence) -> bool:
        return prompt.number in self._has_terms and running.number not in self._has_terms

    def take_late(self) -> list[Sequence]:
        self._queue.demote_late()
        late, self._late = self._late, []
        return late

    def demote_first(self, first: Sequence) -> bool:
        """True if this sequence, the first of the queue, is late and has a later place from now on."""
        if self._due_s[first.number] >= self._now_s() or first.number not in self._has_terms:
            return False
        self._has_terms.discard(first.number)
        self._due_s[first.number] = self._patient_s(first)
        self._late.append(first)
        self.n_late += 1
        return True

    def _doubt(self) -> None:
        """Somebody has no chance by what was measured. If that is so for many, and nobody is measured any more, the times are
        those of a pause or of a lost gang. They count less and less, until one is tried again: otherwise all would be refused
        for ever."""
        self._n_doubts += 1
        if self._n_doubts > _SMOOTHING:
            self._wait_s -= self._wait_s / _SMOOTHING
            self._token_s -= self._token_s / _SMOOTHING

    def _slack_s(self, running: Sequence) -> float:
        """How much longer it has than it needs; endless if it is late anyway, or has no deadline."""
        if running.number not in self._has_terms:
            return math.inf
        n_left = running.max_tokens * self._used - running.n_generated
        needs_s = self._prompt_s(running) + max(n_left, 1.0) * self._token_s
        return self._deadline_s.get(running.number, 0.0) - self._now_s() - needs_s

    def _prompt_s(self, sequence: Sequence) -> float:
        return self._estimates.prompt_s(sequence.known) if self._estimates is not None else 0.0

    def _patient_s(self, sequence: Sequence) -> float:
        return sequence.timeline.arrived_s - sequence.age_s + _PATIENCE_S

    def _latest_start_s(self, sequence: Sequence) -> float | None:
        terms, now_s = sequence.terms, sequence.timeline.arrived_s
        arrived_s = now_s - sequence.age_s
        prompt_s = self._prompt_s(sequence) + self._wait_s
        latest: list[float] = []
        if terms.ttft_ms is not None and not sequence.n_generated:
            latest.append(arrived_s + terms.ttft_ms * _MS - prompt_s)
        whole_s = terms.deadline_s if terms.deadline_ms is None else terms.deadline_ms * _MS
        if whole_s is not None:
            self._deadline_s[sequence.number] = arrived_s + whole_s
            n_left = sequence.max_tokens * self._used - sequence.n_generated
            latest.append(arrived_s + whole_s - prompt_s - max(n_left, 1.0) * self._token_s)
        return min(latest, default=None)


class _DueQueue(SortedQueue):
    """The waiting sequences by their latest starts. The late ones are at the front until they are demoted."""

    def __init__(self, policy: SlaPolicy) -> None:
        super().__init__(policy.key)
        self._policy = policy

    def demote_late(self) -> None:
        """Move the late ones to later places. Each one moves once."""
        while self and self._policy.demote_first(self[0]):
            self.add(self.pop(0))

    def first(self, n: int) -> list[Sequence]:
        self.demote_late()
        return super().first(n)
