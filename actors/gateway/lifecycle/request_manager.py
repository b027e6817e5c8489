"""The request manager: owns every request of this gateway from its admission to its one ending, and its record in the journal.

admit ---> journal ADMIT, dispatcher ---> Tokens ---> sequence.accept ---> journal TOKENS ---(recorded)--->
publish (clients may see it), Ack to the scheduler ---> every sequence ended ---> journal END, retained or forgotten
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from actors.gateway.answer_cache.access import NO_ACCESS, CacheAccess
from actors.gateway.dispatch.dispatcher import Dispatcher
from actors.gateway.dispatch.poison_handling import PoisonHandling
from actors.gateway.dispatch.post import Post, Timer
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import encode_record, request_record, suspect_record
from actors.gateway.journal.retained import RetainedRequests
from actors.gateway.lasting_waits import LastingWaits
from actors.gateway.lifecycle.admission_gate import AdmissionGate
from actors.gateway.lifecycle.equal_requests import EqualRequests
from actors.gateway.lifecycle.finished import FinishedRequests
from actors.gateway.lifecycle.orphans import POLL_EVERY_S, Orphans
from actors.gateway.lifecycle.step_publisher import Ack, StepPublisher
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.lifecycle.unfinished import UnfinishedRequests
from actors.gateway.metrics import GatewayMetrics
from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.access_log import AccessLog
from actors.gateway.requests.refusal_log import RefusalLog
from actors.gateway.requests.refusals import journal_unavailable
from actors.gateway.requests.request import Gap, GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec, ended_by, model_changed
from actors.gateway.requests.work_done import ending_of
from actors.gateway.settings import GatewaySettings
from actors.gateway.similar_answers.question import Asked
from actors.gateway.similar_answers.similar_cache import SimilarCache
from actors.gateway.text.models.text_model import detokenizers
from messages.generation.sequences import CancelReason, Ending, Holding, Taken, Tokens
from messages.ids import model_of


class RequestManager:
    """All requests of one gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        incarnation: int,
        post: Post,
        journal: Journal,
        models: ServedModels,
        metrics: GatewayMetrics,
        similar: SimilarCache | None = None,
    ) -> None:
        self._settings, self._post, self._journal = settings, post, journal
        self.models, self.metrics = models, metrics
        self._log, self.access_log = structlog.get_logger(), AccessLog(settings, models, post.later)
        self.refusals = RefusalLog(settings, metrics.refused, post.later)
        self.dispatcher = Dispatcher(
            settings, incarnation, post, self._end_without_tokens, lambda *who: self.poison.blamed(*who)
        )
        failover, loads = self.dispatcher.failover, self.dispatcher.loads
        failover.on_suspicion = lambda one: journal.step(suspect_record(one), lambda: None)
        self.dispatcher.balancer.metrics = metrics.balancing
        self.lasting, longest_s = LastingWaits(post.later, post.now_s), settings.request_timeout_s
        self.unfinished = UnfinishedRequests(post, self.lasting, longest_s, lambda one: self.cancel(one, "deadline"))
        retained = RetainedRequests(journal, models, settings.retention_s, are_told_apart=settings.names_callers)
        self.finished = FinishedRequests(retained, min(settings.handover_s, settings.retention_s))
        self._next_number, journal.on_pinned = journal.next_number, self._record_again
        self.gate = AdmissionGate(settings, journal, loads, failover.candidates, metrics.overload)
        self.poison = PoisonHandling(settings.retention_s, self.dispatcher, post, journal, self._end_without_tokens)
        self._publisher = StepPublisher(settings, post, journal, metrics, self.gate, self._finish)
        self.ping = self._publisher.ping
        self.equals = EqualRequests(settings, post, loads, similar)
        self._orphans = Orphans(settings.orphan_s, post.now_s())
        self._sweep_timer: Timer | None = None
        self.begin_trace: Callable[[RequestSpec], RequestSpec] = lambda spec: spec
        self.on_over: Callable[[Request], None] = lambda request: None

    def start(self) -> None:
        """Start the sweep, which runs once a second."""
        self._sweep_timer = self._post.later(POLL_EVERY_S, self._sweep)

    def stop(self) -> None:
        """Cancel all timers, and write what is left to log."""
        self.access_log.write()
        self.refusals.end_window()
        self.unfinished.stop()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    # -- clients --------------------------------------------------------------------------------------------------

    def accept(self, spec: RequestSpec, access: CacheAccess = NO_ACCESS, asked: Asked | None = None) -> Request:
        """Record a request that has passed admission, and submit it, unless an equal or similar one has its answer. Nothing is
        visible before the journal has its record; one that is answered at once (`Request.is_at_once`) needs none."""
        source, spec = self.equals.source_of(self.begin_trace(spec), access, asked)
        model = self.models.at(spec.model)
        request = Request(self._next_number, spec, detokenizers(model.text, spec.terms), self._post.now_s())
        self.finished.retained.delete(spec.request)  # one that ended without an answer
        self._register(request)
        rows = self.equals.begin(request, access, source, asked)
        if rows is None:  # first of all, so that it is on its way meanwhile; the journal writes after this turn in any case
            self.dispatcher.submit_request(request)
        self.metrics.accepted(request)
        if not request.is_at_once:
            record = encode_record(request_record(request, model.identity, request.began_s))
            self._journal.admission(request.number, record, request.recorded, lambda: self._withdrawn(request))
        if rows is not None:
            self._publisher.record(rows, None)
        return request

    def find(self, request_id: str) -> Request | None:
        """The request with this id, if it is running or retained; else None."""
        request = self.unfinished.find(request_id)
        return request if request is not None else self.finished.retained.restore(request_id, self._post.now_s())

    def knows(self, request_id: str) -> bool:
        """True if a request with this id is running or retained."""
        return self.unfinished.find(request_id) is not None or self.finished.retained.find(request_id) is not None

    def cancel(self, request: Request, why: CancelReason = "client_left") -> None:
        """End every sequence that has not ended: as failed if `why` is "deadline", else as cancelled."""
        reason = "failed" if why == "deadline" else "cancelled"
        detail = f"not finished within {self.unfinished.limit_s(request):g} s" if why == "deadline" else why
        ended = Ended(reason=reason, code="deadline" if why == "deadline" else "", detail=detail)
        rows = StepRows()
        for sequence in request.sequences:
            if sequence.end(ended):
                self.dispatcher.remove(sequence, why)
                rows.ended(sequence)
        self._record(rows)

    def reader_left(self, request: Request, *, may_return: bool = False) -> None:
        """A reader has left. After the last one a resumable request whose client may return waits `orphan_s`; others end."""
        if request.watchers:
            return
        if request.is_over:
            self.finished.retained.answered(request)
        elif request.spec.is_resumable and (may_return or not request.spec.ends_with_client):
            self._orphans.add(request, self._post.now_s(), with_gateway=may_return)
        else:
            self.cancel(request)

    # -- mail -----------------------------------------------------------------------------------------------------

    def on_tokens(self, sender: str, incarnation: int, message: Tokens) -> None:
        """Accept new tokens and endings from a scheduler."""
        rows, quarantined = StepRows(), list[tuple[GrowingSequence, str]]()
        self.dispatcher.book.add_prompts(message.prompts)
        for attempt, first, ids, n_cached, logprobs in StepRows.read(message):
            sequence = self.dispatcher.book.find(attempt)
            if sequence is None:
                self.metrics.stale_rows.inc()
                continue
            before = len(sequence.ids)
            try:
                taken = sequence.accept(first, ids, logprobs if sequence.wants_logprobs else None, n_cached)
            except Gap as gap:
                fields = sequence.spec.log_fields
                self._log.error("tokens are missing: sequence submitted again", sender=sender, gap=str(gap), **fields)
                self.dispatcher.submit_again(sequence)
                continue
            if taken:
                rows.add(sequence, before)
                if not before:
                    self.dispatcher.balancer.began(sequence)
            if sequence.ended is not None:  # a stop string
                self.dispatcher.remove(sequence, "stop_string")
                rows.ended(sequence)
        for ending in message.endings:
            sequence = self._on_ending(ending, rows)
            if sequence is not None and ending.reason == "quarantined":
                quarantined.append((sequence, ending.detail))
        self._record(rows, (sender, incarnation, message.number))
        self.dispatcher.after_tokens()
        for sequence, detail in quarantined:  # after `accept`, because the tokens of this message count
            self.poison.quarantined(sequence, detail, sequence.replicas_harmed | {sender})

    def on_taken(self, message: Taken) -> None:
        """A scheduler has confirmed a sequence, so its client may get an HTTP status."""
        if (sequence := self.dispatcher.on_taken(message)) is not None:
            self.equals.taken(sequence)

    def on_holding(self, sender: str, message: Holding) -> None:
        """A scheduler has listed the attempts that it has: submit again, or cancel, where the two sides differ."""
        self.dispatcher.holdings.compare(sender, message)
        self._publisher.acknowledge_again(sender)

    def scheduler_up(self, name: str) -> None:
        """A scheduler is ready."""
        self.gate.scheduler_up(model_of(name))
        self.dispatcher.scheduler_up(name)

    def gateway_up(self) -> None:
        """Another gateway is ready."""
        if len(self._post.living("gateway")) + 1 >= len(self._settings.http_sockets):
            self._orphans.gateways_serve(self.unfinished.all, self._post.now_s())

    def _on_ending(self, ending: Ending, rows: StepRows) -> GrowingSequence | None:
        """End the sequence of an attempt; returns it, or None if that attempt was closed before."""
        sequence = self.dispatcher.book.find(ending.attempt)
        if sequence is None:
            return None
        self.dispatcher.remove(sequence, None)
        n_cached = sequence.n_cached if sequence.ids else ending.n_cached
        if sequence.end(ended_by(ending, n_cached)):
            rows.ended(sequence)
        return sequence

    # -- records --------------------------------------------------------------------------------------------------

    def _end_without_tokens(self, sequence: GrowingSequence, ended: Ended) -> None:
        """End a sequence for a reason that came without tokens."""
        self.dispatcher.remove(sequence, None)
        if sequence.end(ended):
            rows = StepRows()
            rows.ended(sequence)
            self._record(rows)

    def _record(self, rows: StepRows, ack: Ack | None = None) -> None:
        """Record what is new of requests and of those that follow them, and submit those whose leader has left."""
        to_submit = self.equals.follow(rows)
        self._publisher.record(rows, ack)
        self._submit_instead(to_submit)

    def _submit_instead(self, requests: Iterable[Request]) -> None:
        """Submit requests whose leader has left. What they are suspected of is recorded as theirs."""
        for request in requests:
            for sequence in request.sequences:
                if sequence.suspicion is not None:
                    self.dispatcher.failover.on_suspicion(sequence)
            self.dispatcher.submit_request(request)

    def _record_again(self, numbers: list[int]) -> None:
        """Write these requests to the journal's newest file, so that older files can be deleted."""
        self.finished.retained.record_again(numbers, self.unfinished.all, self._publisher.coming_items, self._post.now_s())

    def _withdrawn(self, request: Request) -> None:
        """The journal cannot record a request: it is not accepted, and nothing of it has been visible."""
        refusal = journal_unavailable()
        self.refusals.withdrawn(request, refusal)
        ended = Ended(reason="failed", code=refusal.code, detail=refusal.detail)
        for sequence in request.sequences:
            self.dispatcher.remove(sequence, "withdrawn")
            sequence.withdraw(ended)
            self._publisher.close(sequence)
        self.unfinished.remove(request)
        self.on_over(request)
        self._journal.delete(request.number)  # a disk that hangs may still record it
        self.gate.let_go(request)
        request.wake()
        self._submit_instead(self.equals.leave(request))

    # -- beginning and end of a request ---------------------------------------------------------------------------

    def _register(self, request: Request) -> None:
        self._next_number = max(self._next_number, request.number + 1)
        self.gate.accepted(request)
        self.unfinished.add(request)

    def take_over(self, request: Request, identity: ModelIdentity, is_connected: bool) -> bool:
        """Continue an unfinished request of an earlier incarnation, which accepted it for the model `identity`. End it, and
        return False, if it has no client any more or if it may not go on with the model that is served now."""
        self._register(request)
        if not (request.spec.is_resumable or is_connected):
            self.cancel(request)
            return False
        served = self.models.at(request.spec.model).identity
        if not identity.goes_on_with(served):
            for sequence in request.sequences:
                self._end_without_tokens(sequence, model_changed(has_same_model=identity.has_model_of(served)))
            return False
        self._orphans.add(request, self._post.now_s())
        self.metrics.resumed.inc()
        self.dispatcher.submit_request(request)
        return True

    def _finish(self, request: Request, now_s: float) -> None:
        request.ended_s = now_s
        self.unfinished.remove(request)
        ending = ending_of(request)
        self.metrics.observe_ended(request, ending, now_s)
        self.access_log.ended(request, ending)
        self.on_over(request)
        self.equals.over(request)
        self.finished.keep(request, now_s)
        self.gate.let_go(request)

    def _sweep(self) -> None:
        """Once a second: cancel orphans; if the disk accepts writes, delete expired requests."""
        now_s = self._post.now_s()
        for request in self._orphans.expired(self.unfinished.all, now_s):
            self.cancel(request)
        self.finished.expire(now_s, takes_writes=self._journal.is_healthy)
        self._sweep_timer = self._post.later(POLL_EVERY_S, self._sweep)
