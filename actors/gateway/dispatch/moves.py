"""Takes queued work back from replicas that are slow, avoided or drained, or where its caller has too much, and gives it to
others.

    gateway                                     scheduler
    a quarter of a second has passed:
    which queue is too long? --Recall---------> sequences that have never had a slot are released
    submits them elsewhere <----Refused-------- those that run stay, and nothing is said of them

Only the scheduler knows what has begun, so it decides: no work is lost, and no sequence ends. A scheduler of the last release
does not know the message, and its work stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from actors.gateway.dispatch.balancer import Balancer
from actors.gateway.dispatch.balancing.caller_spread import CallerSpread
from actors.gateway.dispatch.breakers.breaker import BreakerState
from actors.gateway.dispatch.breakers.queue_balance import QueueBalance
from actors.gateway.dispatch.breakers.retry_budget import RetryBudget
from actors.gateway.dispatch.failover import Failover
from actors.gateway.dispatch.post import Post, Timer, send_now
from actors.gateway.dispatch.replicas import of_model
from actors.gateway.dispatch.routing import AttemptBook
from actors.gateway.requests.request import GrowingSequence
from messages.generation.recall import Recall
from messages.limits import MAX_SEQUENCES
from messages.wire.arrays import int64s

_LOOK_EVERY_S = 0.25
_STAYS_S = 10.0  # a sequence that was moved stays where it is for this time


class QueueMoves:
    """The moves of one gateway. Its timer runs while sequences wait at one of several replicas, or must leave one."""

    def __init__(self, post: Post, book: AttemptBook, balancer: Balancer, failover: Failover, budget: RetryBudget) -> None:
        self._post, self._book, self._balancer, self._failover, self._budget = post, book, balancer, failover, budget
        self._balance, self._spread = QueueBalance(), CallerSpread()
        self._timer: Timer | None = None
        self.is_held_back: Callable[[], bool] = lambda: False  # while a culprit is sought, nothing moves
        self._log = structlog.get_logger()
        self.n_moved = 0  # sequences

    def arm(self) -> None:
        """A sequence was submitted, or a cordon has changed."""
        if self._timer is None and len(self._schedulers()) > 1:
            self._timer = self._post.later(_LOOK_EVERY_S, self._look)

    def given_back(self, sequence: GrowingSequence) -> bool:
        """An attempt was refused. True if that is because it was recalled: its sequence goes to another replica now."""
        if not sequence.is_recalled:
            return False
        sequence.moved_s = self._post.now_s()
        self.n_moved += 1
        return True

    def _look(self) -> None:
        self._timer = None
        living, health = self._schedulers(), self._balancer.health
        for name in living:
            self._balancer.look(name, self._n_ids)
        draining = [name for name in self._failover.replicas.draining if name in living]
        candidates = self._failover.replicas.candidates(living)
        if candidates and not self.is_held_back():
            self._move(candidates, draining)
        if health.n_waiting or any(self._book.at(name) for name in draining):
            self.arm()

    def _schedulers(self) -> list[str]:
        """Those of the main model, which alone has several replicas."""
        return of_model(self._post.living("scheduler"), 0)

    def _n_ids(self, attempt: int) -> int:
        sequence = self._book.find(attempt)
        return 0 if sequence is None else len(sequence.ids)

    def _move(self, candidates: list[str], draining: list[str]) -> None:
        now_s, health = self._post.now_s(), self._balancer.health
        states = {name: health.state(name, now_s) for name in candidates}
        names = [name for name in candidates if states[name] is not BreakerState.HALF_OPEN]  # it may have its probe
        facts = {name: self._balancer.queue(name, takes_work=states[name] is BreakerState.CLOSED) for name in names}
        n_gateways = len(self._post.living("gateway")) + 1
        for name, n_tokens in self._balance.tokens_to_move(facts, n_gateways).items():
            self._recall(name, n_tokens, "slow" if states[name] is BreakerState.CLOSED else "breaker")
        self._move_by_caller([name for name in names if facts[name].takes_work])
        for name in draining:
            if self._failover.replicas.is_overdue(name, now_s):
                self._failover.leave_now(name)
            else:
                self._recall_all(name)

    def _move_by_caller(self, names: list[str]) -> None:
        """Take back what waits of callers that have too much at one of these replicas."""
        if not self._balancer.is_shared(names):
            self._spread.forget()
            return
        work = self._balancer.work
        for name, left_by_caller in self._spread.tokens_to_move({name: work.by_caller(name) for name in names}).items():
            attempts = list[int]()
            for sequence in self._movable(name, self._balancer.health.waiting(name)):
                caller, n_tokens = self._balancer.caller_of(sequence), work.of_attempt(name, sequence.attempt)
                if n_tokens <= left_by_caller.get(caller, 0.0) and self._budget.take(self._post.now_s()):
                    left_by_caller[caller] -= n_tokens
                    attempts.append(sequence.attempt)
            self._ask_back(name, attempts[:MAX_SEQUENCES], "caller")

    def _movable(self, name: str, attempts: list[int]) -> Iterator[GrowingSequence]:
        """The sequences of these attempts that may leave their replica only to have it better, the newest first."""
        now_s = self._post.now_s()
        for attempt in reversed(attempts):
            sequence = self._book.find(attempt)
            if sequence is None or sequence.is_recalled or sequence.suspicion is not None:
                continue
            if not sequence.moved_s or now_s - sequence.moved_s >= _STAYS_S:
                yield sequence

    def _recall(self, name: str, n_tokens: int, why: str) -> None:
        """Ask a scheduler for its newest waiting sequences with so many tokens of work."""
        now_s, work = self._post.now_s(), self._balancer.work
        left, attempts = n_tokens, list[int]()
        for sequence in self._movable(name, self._balancer.health.waiting(name)):
            left -= work.of_attempt(name, sequence.attempt)
            if left < 0 or len(attempts) == MAX_SEQUENCES or not self._budget.take(now_s):
                break
            attempts.append(sequence.attempt)
        self._ask_back(name, attempts, why)

    def _recall_all(self, name: str) -> None:
        """Ask a scheduler for all its waiting sequences."""
        found = [one for one in self._book.at(name) if not one.is_recalled and one.suspicion is None]
        self._ask_back(name, [one.attempt for one in reversed(found)][:MAX_SEQUENCES], "drain")

    def _ask_back(self, name: str, attempts: list[int], why: str) -> None:
        """Ask a scheduler for those of these attempts that wait there."""
        if not attempts:
            return
        for attempt in attempts:
            if (sequence := self._book.find(attempt)) is not None:
                sequence.is_recalled = True
        self._log.info("waiting sequences are recalled", replica=name, why=why, sequences=len(attempts))
        if self._balancer.metrics is not None:
            self._balancer.metrics.recalls.labels(name, why).inc(len(attempts))
        if not send_now(self._post, name, Recall(attempts=int64s(attempts))):
            for attempt in attempts:
                if (sequence := self._book.find(attempt)) is not None:
                    sequence.is_recalled = False
