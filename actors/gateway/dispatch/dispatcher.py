"""Submits sequences to schedulers, and submits them again when a scheduler dies or refuses for now.

    waiting --(a scheduler is ready; directory asked)-------> submitted --Taken--> running --> ended
       ^                                                          |                   |
       +------------- scheduler dead, refusal for now, gap <------+-------------------+      (a budget of losses)

A sequence without a living scheduler waits here, up to its request's deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from actors.gateway.dispatch.balancer import Balancer
from actors.gateway.dispatch.balancing.strategy import Choice
from actors.gateway.dispatch.bisection import Bisection
from actors.gateway.dispatch.breakers.full_queues import FullQueues, place_of
from actors.gateway.dispatch.breakers.retry_budget import RetryBudget
from actors.gateway.dispatch.failover import Failover
from actors.gateway.dispatch.holdings import Holdings
from actors.gateway.dispatch.large_requests import LargeRequests
from actors.gateway.dispatch.moves import QueueMoves
from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.dispatch.prefix_queries import PrefixQueries
from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.gateway.dispatch.replicas import of_model
from actors.gateway.dispatch.retry_timer import RetryTimer
from actors.gateway.dispatch.routing import AttemptBook, holder_for
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.settings import GatewaySettings
from messages.caches import prefixes
from messages.generation.replica_state import ReplicaState
from messages.generation.sequences import Cancel, CancelReason, Holder, Refused, Submit, Taken
from messages.ids import model_of
from messages.lifecycle import lifecycle
from messages.lifecycle.cordon import Cordon
from messages.wire.arrays import int32s

_SUSPICIOUS: frozenset[lifecycle.Cause] = frozenset(("crashed", "faulted", "hung"))  # deaths that a request may have caused


class Dispatcher:
    """The submissions of one gateway. `give_up` is called with the ending of a sequence that is not submitted any more;
    `blame` with a sequence that faults schedulers, and how that is known."""

    def __init__(
        self,
        settings: GatewaySettings,
        incarnation: int,
        post: Post,
        give_up: Callable[[GrowingSequence, Ended], None],
        blame: Callable[[GrowingSequence, str], None],
    ) -> None:
        self._settings, self._post, self._give_up, self._blame = settings, post, give_up, blame
        self._bisection = Bisection()
        self.book = AttemptBook(incarnation)
        self.loads = ReplicaLoads()
        self.failover = Failover(settings.failover_s, post, self.book, self._move)
        self.holdings = Holdings(self.book, post, self.submit_again)
        self.balancer, self._budget = Balancer(settings, post, self.loads), RetryBudget()
        self.book.on_close, self.loads.on_report = self.balancer.closing, self.balancer.work.reported
        self.moves = QueueMoves(post, self.book, self.balancer, self.failover, self._budget)
        self.moves.is_held_back = lambda: self._bisection.is_active
        self._waiting: dict[int, GrowingSequence] = {}  # by key, in order of arrival
        self._queries = PrefixQueries(post, settings, lambda found, pages: self._route(found, pages, self._candidates(0)))
        self._retries = RetryTimer(post, self._budget, self._retry)
        self._full, self._large = FullQueues(), LargeRequests(post, self._place)
        self.resubmissions = 0

    @property
    def n_waiting(self) -> int:
        """Number of sequences without an open attempt."""
        return len(self._waiting) + len(self._queries.sequences()) + len(self._large.left())

    def submit_request(self, request: Request) -> None:
        """Submit every sequence of a request that has not ended; sequences of one prompt go to the same replica. A large
        request is submitted in several turns of the event loop."""
        self._large.submit(request)

    def remove(self, sequence: GrowingSequence, why: CancelReason | None) -> None:
        """Close the attempt of a sequence. Sends its scheduler a Cancel with `why`; None: the scheduler has ended it."""
        self._waiting.pop(sequence.key, None)
        self._full.release(sequence)
        self._full.closed(sequence.scheduler)
        if why is not None and sequence.attempt:
            send_now(self._post, sequence.scheduler, Cancel(attempt=sequence.attempt, why=why), sequence.spec.terms.trace_id)
        self.book.close(sequence)

    def submit_again(self, sequence: GrowingSequence, *, why: CancelReason = "replaced") -> None:
        """Close the present attempt and submit the sequence again."""
        self.balancer.failed(sequence.scheduler, sequence.attempt, "lost")
        self.remove(sequence, why)
        self._place_lost(sequence)

    def _move(self, sequence: GrowingSequence) -> None:
        """Submit a sequence to another replica. It has lost nothing by its own doing, so this counts as no loss."""
        self.remove(sequence, "replaced")
        self._place_again(sequence)

    def set_cordons(self, cordons: Iterable[Cordon]) -> None:
        """An operator wants no new sequences at these replicas. Others may get sequences again, which may have waited."""
        if self.failover.replicas.set_cordons(cordons):
            self.moves.arm()
            self._retry()

    def statistics(self) -> dict[str, float]:
        """For `supervisor status`."""
        figures = {"waiting": self.n_waiting, "resubmissions": self.resubmissions, "moved_from_queues": self.moves.n_moved}
        return {**figures, "delayed_retries": self._retries.n_delayed, **self.balancer.statistics()}

    # -- mail -----------------------------------------------------------------------------------------------------

    def on_taken(self, message: Taken) -> GrowingSequence | None:
        """A scheduler confirms an attempt; returns its sequence, or None if the attempt is closed."""
        sequence = self.book.find(message.attempt)
        if sequence is not None:
            sequence.is_taken = True
            self.balancer.work.confirmed(sequence.scheduler, sequence.attempt, self._post.now_s())
        return sequence

    def on_state(self, scheduler: str, message: ReplicaState) -> None:
        """A scheduler has reported the condition of its replica."""
        self.failover.on_state(scheduler, message)

    def on_refused(self, message: Refused) -> None:
        """A scheduler refuses an attempt: retry later if it is retryable, else give the sequence up."""
        sequence = self.book.find(message.attempt)
        if sequence is None:
            return
        if not message.retryable:
            self.book.close(sequence)
            again_s = message.retry_after_s
            self._give_up(sequence, Ended(reason="failed", code=message.code, detail=message.detail, retry_after_s=again_s))
            return
        sequence.avoided = sequence.scheduler
        if self.moves.given_back(sequence):
            self.book.close(sequence)
            self._place_again(sequence)
            return
        self._full.refused(sequence.scheduler, sequence)
        self.balancer.failed(sequence.scheduler, sequence.attempt, "refused")
        self.book.close(sequence)
        self.resubmissions += 1
        self._waiting[sequence.key] = sequence
        self._retries.set(sequence.n_submissions)

    def on_prefix_found(self, message: prefixes.PrefixFound) -> None:
        """The cache directory's answer: submit the sequences that wait for it."""
        self._queries.answered(message)

    def scheduler_up(self, name: str) -> None:
        """A scheduler is ready: submit every waiting sequence. Some of those that wait at others may come to it."""
        self.failover.replicas.remove(name)
        self.loads.remove(name)
        self._retry()
        self.moves.arm()

    def scheduler_down(self, name: str, cause: lifecycle.Cause) -> None:
        """Submit every sequence of a dead scheduler again, with the output that is known.

        A loss counts against the budget of a sequence only if the sequence may have caused it: the scheduler was not killed
        from outside, and it had confirmed the attempt, which is the first thing that it does with one.
        """
        self.failover.replicas.remove(name)
        self.loads.remove(name)
        lost = self.book.close_all_of(name)
        self.failover.note_again(name, lost)
        suspects = [sequence for sequence in lost if sequence.is_taken] if cause in _SUSPICIOUS else []
        if cause in _SUSPICIOUS:
            self.balancer.died(name)
        for sequence in suspects:
            sequence.n_losses += 1
        blamed = self._bisection.scheduler_died(suspects)
        if blamed is not None:
            self._blame(blamed[0], f"schedulers died {blamed[1]} times while they had this sequence alone")
        for sequence in lost:
            self._place_unless_hopeless(sequence)
        self._retry()

    def after_tokens(self) -> None:
        """Sequences have new tokens or have ended: others that wait for that may be submitted."""
        if self._bisection.is_active and self._bisection.advance():
            self._retry()
        for name in self._full.take_freed():
            model = model_of(name)
            if name in self._candidates(model) and (sequence := self._full.take(name, model)) is not None:
                self._route([sequence], {}, [name])

    def end_all(self, is_meant: Callable[[GrowingSequence], bool], ended: Ended, why: CancelReason) -> None:
        """End every sequence for which `is_meant` is true, and cancel it at its scheduler with `why`."""
        for sequence in [*self.book.sequences(), *self._waiting.values(), *self._queries.sequences(), *self._large.left()]:
            if is_meant(sequence):
                self.remove(sequence, why)
                self._give_up(sequence, ended)

    # -- placing --------------------------------------------------------------------------------------------------

    def _place(self, sequences: Sequence[GrowingSequence]) -> None:
        """Submit sequences of one prompt. With several replicas, first ask the cache directory which ones hold its prefix."""
        sequences = [s for s in sequences if not self._is_finished(s)]
        if not sequences:
            return
        model = sequences[0].spec.model
        candidates = self._candidates(model)
        if self._full.is_full_for(sequences, candidates):
            self._waiting.update((s.key, s) for s in sequences)
            self._full.hold(sequences)
            return
        # the directory knows prefixes of the main model alone
        if not model and (len(candidates) > 1 or (candidates and self._has_holders())) and self._queries.ask(sequences):
            return
        self._route(sequences, {}, candidates)

    def _has_holders(self) -> bool:
        """True if a replica can get pages from others, also from those that no attempts may go to now."""
        return self._settings.names_holders and len(of_model(self._post.living("scheduler"), 0)) > 1

    def _candidates(self, model: int) -> list[str]:
        """The schedulers that attempts for this model may go to now."""
        return self.failover.candidates(model)

    def _route(self, sequences: Sequence[GrowingSequence], pages_by_name: dict[str, int], candidates: list[str]) -> None:
        sequences = [s for s in sequences if s.ended is None]
        if not sequences:
            return
        if self._bisection.is_active and not any(self._bisection.is_isolated(s) for s in sequences):
            candidates = [name for name in candidates if name not in self._bisection.schedulers]
        if not candidates:
            self._waiting.update((s.key, s) for s in sequences)
            return
        avoided = {s.avoided for s in sequences}
        usable = [name for name in candidates if name not in avoided] or candidates
        n_tokens = sum(map(self.balancer.work_of, sequences))
        choice = self.balancer.choose(usable, pages_by_name, n_tokens, sequences[0].spec.terms.caller)
        holder = holder_for(choice.name, pages_by_name) if self._settings.names_holders else None
        for sequence in sequences:
            self._submit(sequence, choice, holder, pages_by_name.get(choice.name, 0))

    def _submit(self, sequence: GrowingSequence, choice: Choice, holder: Holder | None, n_cached_pages: int) -> None:
        spec, name, sequence.avoided = sequence.spec, choice.name, ""
        self._waiting.pop(sequence.key, None)
        self._full.release(sequence)
        self._budget.submitted()
        message = Submit(
            attempt=self.book.open(sequence, name),
            request=spec.request,
            tokens=int32s(sequence.all_tokens()),
            n_prompt=sequence.n_prompt,
            sampling=spec.sampling_of(sequence.index),
            terms=spec.terms,
            suspicion=sequence.suspicion_now(),
            x_request_id=spec.correlation_id,
            holder=holder,
            age_s=max(self._post.now_s() - sequence.request.began_s, 0.0),
            is_again=sequence.n_submissions > 1,
        )
        is_sent = send_now(self._post, name, message, spec.terms.trace_id)
        self.balancer.opened(sequence, choice, n_cached_pages)  # after the message, which does not wait for it
        self.moves.arm()
        if not is_sent:
            self.book.close(sequence)
            self._waiting[sequence.key] = sequence
            self._retries.set(sequence.n_submissions)

    def _is_finished(self, sequence: GrowingSequence) -> bool:
        """End the sequence if it has all its tokens: its scheduler may have died before the ending. True if it has ended."""
        if sequence.ended is None and len(sequence.ids) >= sequence.spec.terms.max_tokens:
            self._give_up(sequence, Ended(reason="length", n_cached=sequence.n_cached))
        elif sequence.ended is None and sequence.ids and sequence.ids[-1] in sequence.request.stop_set:
            self._give_up(sequence, Ended(reason="stop", n_cached=sequence.n_cached))
        return sequence.ended is not None

    def _place_lost(self, sequence: GrowingSequence) -> None:
        """Submit a sequence again after a loss."""
        sequence.n_losses += 1
        self._place_unless_hopeless(sequence)

    def _place_unless_hopeless(self, sequence: GrowingSequence) -> None:
        """Submit a sequence again; give it up after too many losses without a new token between them."""
        if sequence.n_losses > self._settings.resubmit_budget:
            detail = f"given up after {sequence.n_losses} lost attempts without progress"
            self._give_up(sequence, Ended(reason="failed", code="internal", detail=detail))
            return
        self._place_again(sequence)

    def _place_again(self, sequence: GrowingSequence) -> None:
        self.resubmissions += 1
        self._place([sequence])

    def _retry(self) -> None:
        self._retries.clear()
        self._full.clear()
        waiting, self._waiting = sorted(self._waiting.values(), key=place_of), {}
        if self._bisection.is_active:
            waiting.sort(key=lambda sequence: not self._bisection.is_isolated(sequence))
        for sequence in waiting:
            self._place([sequence])
