"""The desk: owns every request of this gateway from admission to its one ending, and its record in the journal.

admit ---> journal ADMIT, dispatcher ---> Tokens ---> sequence.accept ---> journal TOKENS ---(recorded)--->
publish (clients may see it), Ack to the scheduler ---> every sequence ended ---> journal END, retained or forgotten
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from actors.gateway.dispatcher import Dispatcher, Post, Timer
from actors.gateway.journal import Journal
from actors.gateway.journal_records import StepRow, encode_order, encode_states, encode_step, row_of, state_of
from actors.gateway.metrics import GatewayMetrics
from actors.gateway.order import Ended, Order
from actors.gateway.recovery import restore
from actors.gateway.refusals import Refusal
from actors.gateway.request import Gap, GrowingSequence, Request
from actors.gateway.retained import Retained, RetainedRequests
from actors.gateway.settings import GatewaySettings
from actors.gateway.step_rows import StepRows
from actors.gateway.tokenizer import TextModel
from messages import generation
from messages.faults import MailboxFull, UnknownPeer

_SWEEP_S = 1.0
_CHECKPOINT_TOKENS = 4096  # a sequence this long moves its tokens out of the steps table


class RequestDesk:
    """All requests of one gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        incarnation: int,
        post: Post,
        journal: Journal,
        model: TextModel,
        metrics: GatewayMetrics,
    ) -> None:
        self._settings, self._post, self._journal = settings, post, journal
        self._model, self.metrics = model, metrics
        self._log = structlog.get_logger()
        self.dispatcher = Dispatcher(settings, incarnation, post, self._end_alone)
        self._request_by_id: dict[str, Request] = {}
        self._deadline_by_number: dict[int, Timer] = {}
        self._retained = RetainedRequests(settings.retention_s)
        self._next_number = 1
        self.n_active = 0  # sequences without a visible ending
        self.is_draining = False
        self.was_ready = False
        self.on_idle: Callable[[], None] = lambda: None
        self._sweep_timer: Timer | None = None

    def start(self) -> None:
        """Begin to sweep."""
        self._sweep_timer = self._post.later(_SWEEP_S, self._sweep)

    def stop(self) -> None:
        """No more timers."""
        for timer in (self._sweep_timer, *self._deadline_by_number.values()):
            if timer is not None:
                timer.cancel()

    # -- clients --------------------------------------------------------------------------------------------------

    def check_open(self, n_sequences: int) -> None:
        """May so many more sequences be accepted now? Raises: Refusal."""
        if self.is_draining:
            raise Refusal("unavailable", "the server is draining", retry_after_s=5.0)
        if not self._journal.is_healthy:
            raise Refusal("unavailable", "the request journal does not take writes", retry_after_s=5.0)
        if not self.was_ready:
            raise Refusal("unavailable", "the server is starting: no scheduler is ready yet", retry_after_s=2.0)
        if self.n_active and self.n_active + n_sequences > self._settings.max_active_requests:
            detail = f"{self.n_active} sequences are active, {self._settings.max_active_requests} is the limit"
            raise Refusal("overloaded", detail, retry_after_s=1.0)

    def admit(self, order: Order) -> Request:
        """Accept a request. Nothing of it is visible before its record is certain.

        Raises: Refusal.
        """
        self.check_open(order.n_sequences)
        request = Request(self._next_number, order, self._model.detokenizer, self._post.now_s())
        self._own(request)
        self.metrics.prompt_tokens.inc(sum(request.n_prompt) * order.n)
        self._journal.admit(request.number, encode_order(order), lambda: self._admitted(request))
        self.dispatcher.submit_request(request)
        return request

    def find(self, request_id: str) -> Request | None:
        """A request by its id: living, or finished and retained."""
        request = self._request_by_id.get(request_id)
        if request is None and (kept := self._retained.find(request_id)) is not None:
            request = restore(kept.recovered(), self._model, self._post.now_s())
        return request

    def cancel(self, request: Request, why: str = "client_left") -> None:
        """Nobody wants it any more."""
        reason = "failed" if why == "deadline" else "cancelled"
        detail = f"not finished within {self._settings.request_timeout_s:g} s" if why == "deadline" else why
        ended = Ended(reason=reason, code="deadline" if why == "deadline" else "", detail=detail)
        rows = StepRows()
        for sequence in request.sequences:
            if sequence.end(ended):
                self.dispatcher.forget(sequence, why)
                rows.ended(sequence)
        self._record(rows, None)

    def reader_left(self, request: Request) -> None:
        """A client is gone. Without another reader: a resumable request waits for it a while, any other one is cancelled."""
        if request.watchers or request.is_over:
            return
        if request.order.is_resumable:
            request.orphaned_s = self._post.now_s()
        else:
            self.cancel(request)

    # -- mail -----------------------------------------------------------------------------------------------------

    def on_tokens(self, sender: str, incarnation: int, message: generation.Tokens) -> None:
        """One step's tokens of one scheduler."""
        rows = StepRows()
        for attempt, first, ids, logprobs in StepRows.read(message):
            sequence = self.dispatcher.book.find(attempt)
            if sequence is None:
                self.metrics.stale_rows.inc()
                continue
            before = len(sequence.ids)
            try:
                wants_logprobs = sequence.request.order.sampling.logprobs >= 0
                taken = sequence.accept(first, ids, logprobs if wants_logprobs else None)
            except Gap as gap:
                self._log.error("tokens with a gap", request=sequence.request.order.request, sender=sender, gap=str(gap))
                self.dispatcher.again(sequence)
                continue
            if taken:
                rows.add(sequence, before)
            if sequence.ended is not None:  # a stop string
                self.dispatcher.forget(sequence, "stop_string")
                rows.ended(sequence)
        for ending in message.endings:
            self._on_ending(ending, rows)
        self._record(rows, (sender, incarnation, message.number))

    def on_taken(self, message: generation.Taken) -> None:
        """A scheduler holds a sequence: a client may get its status line."""
        sequence = self.dispatcher.on_taken(message)
        if sequence is not None:
            sequence.request.wake()

    def scheduler_up(self) -> None:
        """Somebody can work."""
        self.was_ready = True
        self.dispatcher.scheduler_up()

    def _on_ending(self, ending: generation.Ending, rows: StepRows) -> None:
        sequence = self.dispatcher.book.find(ending.attempt)
        if sequence is None:
            return
        self.dispatcher.forget(sequence, None)
        code = "internal" if ending.reason == "failed" else ""
        if sequence.end(Ended(reason=ending.reason, n_cached=ending.n_cached, code=code, detail=ending.detail)):
            rows.ended(sequence)

    # -- records --------------------------------------------------------------------------------------------------

    def _end_alone(self, sequence: GrowingSequence, ended: Ended) -> None:
        """An ending that came without tokens."""
        self.dispatcher.forget(sequence, None)
        if sequence.end(ended):
            rows = StepRows()
            rows.ended(sequence)
            self._record(rows, None)

    def _record(self, rows: StepRows, ack: tuple[str, int, int] | None) -> None:
        if rows.is_empty:
            if ack is not None:
                self._journal.after_all(lambda: self._acknowledge(*ack))
            return
        fresh: list[StepRow] = [row_of(sequence, first, stop) for sequence, first, stop in rows.rows]
        endings = [(sequence.key, sequence.ended) for sequence in rows.endings if sequence.ended is not None]
        self._journal.step(encode_step(fresh, endings), lambda: self._recorded(rows, ack))

    def _recorded(self, rows: StepRows, ack: tuple[str, int, int] | None) -> None:
        """The law's turning point: from here on clients may see it."""
        now_s = self._post.now_s()
        touched: dict[int, Request] = {}
        n_tokens = 0
        for sequence, first, stop in rows.rows:
            n_tokens += stop - first
            self._observe(sequence, now_s)
            sequence.publish(stop, False)
            touched[sequence.request.number] = sequence.request
        for sequence in rows.endings:
            sequence.publish(sequence.n_visible, True)
            sequence.request.n_open -= 1
            self.n_active -= 1
            touched[sequence.request.number] = sequence.request
        if n_tokens:
            self.metrics.output_tokens.inc(n_tokens)
        if ack is not None:
            self._acknowledge(*ack)
        for request in touched.values():
            request.wake()
            if request.is_over:
                self._finish(request, now_s)
        if not self.n_active and rows.endings:
            self.on_idle()

    def _observe(self, sequence: GrowingSequence, now_s: float) -> None:
        if sequence.last_visible_s:
            self.metrics.gap_s.observe(now_s - sequence.last_visible_s)
        elif not sequence.request.first_token_s:
            sequence.request.first_token_s = now_s
            self.metrics.first_token_s.observe(now_s - sequence.request.began_s)
        sequence.last_visible_s = now_s

    def _acknowledge(self, sender: str, incarnation: int, number: int) -> None:
        if self._post.incarnation_of(sender) != incarnation:
            return
        try:
            self._post.send(sender, generation.Ack(up_to=number))
        except (UnknownPeer, MailboxFull):
            self._log.warning("ack not sent", to=sender, number=number)

    def _admitted(self, request: Request) -> None:
        request.is_recorded = True
        request.wake()

    # -- life of a request ----------------------------------------------------------------------------------------

    def _own(self, request: Request) -> None:
        self._next_number = max(self._next_number, request.number + 1)
        self._request_by_id[request.order.request] = request
        self.n_active += request.n_open
        left_s = self._settings.request_timeout_s - max(0.0, self._post.wall_s() - request.order.created_s)
        self._deadline_by_number[request.number] = self._post.later(max(left_s, 0.0), lambda: self.cancel(request, "deadline"))

    def take_over(self, request: Request) -> bool:
        """Go on with an unfinished request of an earlier life; False when its client cannot come back for it."""
        self._own(request)
        if not request.order.is_resumable:
            self.cancel(request)
            return False
        request.orphaned_s = self._post.now_s()
        self.metrics.resumed.inc()
        self.dispatcher.submit_request(request)
        return True

    def settle(self, request: Request, ended_s: float | None) -> None:
        """A finished request of an earlier life; `ended_s` None: its end was shown but not yet filed."""
        self._next_number = max(self._next_number, request.number + 1)
        self._file(request, self._post.wall_s() if ended_s is None else ended_s)

    def drop(self, number: int) -> None:
        """A record that cannot be read."""
        self._next_number = max(self._next_number, number + 1)
        self._journal.forget(number)

    def _finish(self, request: Request, now_s: float) -> None:
        request.ended_s = now_s
        self._deadline_by_number.pop(request.number).cancel()
        self._request_by_id.pop(request.order.request, None)
        reasons = {s.ended.reason for s in request.sequences if s.ended is not None}
        ending = next(r for r in ("failed", "cancelled", "length", "stop") if r in reasons)
        self.metrics.requests.labels(request.order.api, ending).inc()
        self.metrics.whole_s.observe(now_s - request.began_s)
        self._file(request, self._post.wall_s())

    def _file(self, request: Request, ended_s: float) -> None:
        if not request.order.is_resumable:
            self._journal.forget(request.number)
            return
        states = encode_states([state_of(sequence) for sequence in request.sequences])
        self._journal.finish(request.number, states, ended_s)
        self._retained.add(Retained(request.number, request.order, states, ended_s))

    def _sweep(self) -> None:
        """Once a second: orphans, long requests, retention."""
        now_s, wall_s = self._post.now_s(), self._post.wall_s()
        for request in list(self._request_by_id.values()):
            if request.orphaned_s and now_s - request.orphaned_s > self._settings.orphan_s:
                self.cancel(request)
            elif request.n_generated - request.n_checkpointed > _CHECKPOINT_TOKENS * len(request.sequences):
                request.n_checkpointed = request.n_generated
                states = encode_states([state_of(sequence) for sequence in request.sequences])
                self._journal.checkpoint(request.number, states)
        self._journal.prune(wall_s - self._settings.retention_s)
        for number in self._retained.expire(wall_s):
            self._journal.forget(number)
        self._sweep_timer = self._post.later(_SWEEP_S, self._sweep)
