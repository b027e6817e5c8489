"""Ends the sequences of a scheduler: each attempt gets its one ending, and its slot and pages are given back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from actors.actor import Actor
from actors.scheduler.admission import unfit, within_budget
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.gang.grammar_gate import GRAMMAR_LIMIT_S
from actors.scheduler.gang.probation import ForcedEnding
from actors.scheduler.hints import Hints
from actors.scheduler.load.load_reports import LoadReports
from actors.scheduler.metrics import SchedulerMetrics
from actors.scheduler.outgoing import Outgoing
from actors.scheduler.policies.late_refusal import late_refusal
from actors.scheduler.sequences.policy import LateRequests, SchedulingPolicy
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence, State
from actors.scheduler.trace_recorder import TraceRecorder
from messages.generation.recall import Recall
from messages.generation.sequences import Cancel, Ending, Refused
from messages.outcomes import Code, EndReason, NoCode
from messages.steps import EngineCapacity
from messages.transport.mailbox import Delivery

_MOST_LOGGED = 16  # requests in a line
_GIVEN_BACK = "the queue: its gateway has asked for it, because another replica can begin it sooner"


class Endings:
    """Ends sequences of one scheduler. `actor` sends and logs; `outgoing` has the next message to each gateway."""

    def __init__(
        self,
        actor: Actor,
        queues: SequenceQueues,
        gang: GangView,
        outgoing: Mapping[str, Outgoing],
        hints: Hints,
        metrics: SchedulerMetrics,
        recorder: TraceRecorder,
    ) -> None:
        self._actor, self._gang, self._outgoing, self._hints, self._metrics = actor, gang, outgoing, hints, metrics
        self._queues, self._recorder = queues, recorder

    def on_cancel(self, delivery: Delivery, cancel: Cancel) -> None:
        """The gateway does not want the rest of an attempt: end its sequence."""
        if (sequence := self._queues.find(delivery.sender, int(cancel.attempt))) is not None:
            self.end(sequence, "cancelled", cancel.why)

    def on_recall(self, delivery: Delivery, recall: Recall) -> None:
        """The gateway can have these sequences begun sooner elsewhere: give back those that have not been in a slot."""
        for attempt in recall.attempts.tolist():
            sequence = self._queues.find(delivery.sender, attempt)
            if sequence is not None and sequence.has_never_run:
                self._actor.send(
                    sequence.gateway, Refused(attempt=attempt, code="overloaded", detail=_GIVEN_BACK, retryable=True)
                )
                self.release(sequence)

    def end(self, sequence: Sequence, reason: EndReason, detail: str = "", code: Code | NoCode = "") -> None:
        """End a sequence. Its gateway is told with the last tokens; detail, code: why it failed."""
        n_cached = min(sequence.n_cached, sequence.n_prompt)
        work = sequence.timeline.work(time.monotonic())
        ending = Ending(attempt=sequence.attempt, reason=reason, n_cached=n_cached, code=code, detail=detail, work=work)
        self._outgoing[sequence.gateway].end(sequence, ending)
        self._metrics.endings.labels(reason=reason).inc()
        self.release(sequence)

    def end_at_limit(self, sequence: Sequence) -> None:
        """End a sequence at its `max_tokens`. One that was accepted for more, by a gang that could hold more, has failed."""
        if sequence.is_cut:
            detail = f"the replica that accepted it could hold more tokens than this one: {sequence.max_tokens} of the answer"
            self.end(sequence, "failed", detail, "too_large_for_memory")
        else:
            self.end(sequence, "length")

    def end_forced(self, endings: Iterable[ForcedEnding]) -> None:
        """End sequences because their gang has died of them or has refused them, each with an error in the log."""
        for ending in endings:
            fields = ending.sequence.log_fields
            self._actor.log.error("sequence ended by force", reason=ending.reason, detail=ending.detail, **fields)
            self.end(ending.sequence, ending.reason, ending.detail)
        if self._gang.probation.is_active:
            self._actor.log.warning("suspects are computed alone", requests=self._gang.probation.requests[:_MOST_LOGGED])

    def end_overdue(self, sequences: Iterable[Sequence], grammars: Collection[str]) -> None:
        """End those of the sequences that follow one of these grammars, which the ranks could not compile in time."""
        detail = f"grammar: expected one that is compiled within {GRAMMAR_LIMIT_S:.0f} s"
        for sequence in sequences:
            if sequence.terms.grammar is not None and sequence.terms.grammar.text in grammars:
                self.end(sequence, "failed", detail, "grammar_too_complex")

    def fit_to(self, sequence: Sequence, capacity: EngineCapacity) -> None:
        """Limit the length of a sequence by the gang's capacity. End it if it is already complete then; refuse it if it can
        never run on this gang."""
        capacity = within_budget(capacity, sequence.terms)
        sequence.fit_to(capacity.max_sequence_tokens - sequence.n_prompt)
        refusal = unfit(sequence.attempt, sequence.tokens(), capacity)
        if sequence.n_generated and sequence.n_generated >= sequence.max_tokens:
            self.end_at_limit(sequence)
        elif refusal is not None:
            self._actor.send(sequence.gateway, refusal)
            self.release(sequence)

    def drop_late(self, policy: SchedulingPolicy, means: LateRequests, loads: LoadReports) -> None:
        """Refuse the sequences that have turned out to be late, if that is meant: those that no scheduler has had before.
        `loads` says how long the work takes that waits."""
        for sequence in policy.take_late():
            is_new = sequence.state is State.WAITING and not (sequence.is_again or sequence.stay or sequence.n_sent)
            if means is LateRequests.REFUSE and is_new:
                n_waiting = len(self._queues.waiting)
                refusal = late_refusal(sequence, self._queues.now_s(), n_waiting, loads.wait_s)
                self._actor.send(sequence.gateway, refusal)
                self.release(sequence)

    def release(self, sequence: Sequence) -> None:
        """Remove a sequence whose gateway needs no ending: it has got one, was refused, or is dead."""
        self._gang.release(sequence)
        self._hints.ended(sequence)
        self._recorder.ended(sequence)
