"""Chooses the replica for sequences, and learns from what becomes of them.

    names that may be used --> breakers --> a probe that is due, or the strategy (`gateway.balancing`) --> one name

The parts decide and are pure; this class gives them the clock and counts what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from actors.gateway.dispatch.balancing.choice import make_strategy
from actors.gateway.dispatch.balancing.open_work import OpenWork
from actors.gateway.dispatch.balancing.strategy import Candidate, Choice, ChoiceReason
from actors.gateway.dispatch.balancing_metrics import BalancingMetrics
from actors.gateway.dispatch.breakers.breaker import BreakerState
from actors.gateway.dispatch.breakers.queue_balance import QueueFacts
from actors.gateway.dispatch.breakers.replica_health import ReplicaHealth
from actors.gateway.dispatch.post import Post
from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.gateway.requests.request import GrowingSequence
from actors.gateway.settings import GatewaySettings
from messages.steps import PAGE_TOKENS


class Balancer:
    """The choices of one gateway."""

    def __init__(self, settings: GatewaySettings, post: Post, reports: ReplicaLoads) -> None:
        self._strategy, self._post, self._reports = make_strategy(settings.balancing), post, reports
        self._are_told_apart = settings.names_callers
        self.work, self.health = OpenWork(), ReplicaHealth()
        self.metrics: BalancingMetrics | None = None
        self._has_several = False  # there are several replicas, or were before one died
        self._log = structlog.get_logger()

    def choose(self, names: Sequence[str], pages_by_name: Mapping[str, int], n_tokens: int, caller: bytes = b"") -> Choice:
        """The scheduler for sequences of one prompt that bring `n_tokens` tokens of work. `names`: those that may get it, not
        empty. `pages_by_name`: leading pages of the prompt that each replica has cached. `caller`: whose sequences they are."""
        now_s, health, admitted = self._post.now_s(), self.health, names
        if not health.are_closed(names):
            if due := health.probe_due(names, now_s):
                return Choice(due, ChoiceReason.PROBE)
            admitted = health.admitted(names, now_s)
        if len(admitted) == 1:
            return Choice(admitted[0], ChoiceReason.ONLY)
        is_shared = self.is_shared(admitted)
        candidates = [
            Candidate(
                name,
                int(self.load_tokens(name) * slowness),
                self.work.recent_tokens(name, now_s) * slowness,
                pages_by_name.get(name, 0),
                self.work.tokens_of(name, caller) * slowness if is_shared else 0.0,
            )
            for name, slowness in self._slowness(sorted(admitted)).items()
        ]
        return self._strategy.choose(candidates, n_tokens)

    def is_shared(self, names: Iterable[str]) -> bool:
        """True if callers have to share these replicas. Where nobody waits, each gets all that it asks for."""
        if not self._are_told_apart:
            return False
        return any((report := self._reports.of(name)) is not None and report.waiting for name in names)

    def caller_of(self, sequence: GrowingSequence) -> bytes:
        """Whose share of a replica a sequence needs; b"" where callers are not told apart."""
        return sequence.spec.terms.caller if self._are_told_apart else b""

    def part_of(self, sequence: GrowingSequence, n_more: int) -> float:
        """Tokens that the caller of a sequence has at all replicas, for its weight, if so many more like this one are there; 0
        where callers are not told apart."""
        if not (caller := self.caller_of(sequence)):
            return 0.0
        return (self.work.tokens_of_all(caller) + n_more * self.work_of(sequence)) / sequence.spec.terms.weight

    def work_of(self, sequence: GrowingSequence) -> int:
        """Tokens that have to be computed for a sequence, as far as they can be known: those of its prompt and its output so
        far, and as many more as answers have."""
        n_prompt, n_ids = sequence.n_prompt, len(sequence.ids)
        return n_prompt + n_ids + self.work.expected_output(sequence.spec.terms.max_tokens - n_ids)

    def load_tokens(self, name: str) -> int:
        """Tokens that wait or run at a replica."""
        report = self._reports.of(name)
        reported_tokens = None if report is None else report.waiting_tokens + report.running_tokens
        return self.work.load_tokens(name, reported_tokens, self._post.now_s())

    def _slowness(self, names: list[str]) -> dict[str, float]:
        """How many times as long as the quickest of these replicas each of them takes for its work, by first tokens. How long
        one waits depends on priorities and shares too, so a replica where others wait counts as no slower than its rate."""
        found = self.health.slowness(names)
        if max(found.values()) > 1.0:
            reports = {name: one for name in names if (one := self._reports.of(name)) is not None and one.rate}
            best = max((one.rate for one in reports.values()), default=0.0)
            for name, one in reports.items():
                if one.waiting:
                    found[name] = min(found[name], best / one.rate)
        return found

    def queue(self, name: str, *, takes_work: bool) -> QueueFacts:
        """How long new work would wait at a replica, and whether it may go there."""
        report, s_per_token = self._reports.of(name), self.health.s_per_token(name)
        if report is None:
            return QueueFacts(self.load_tokens(name), s_per_token, takes_work)
        return QueueFacts(report.waiting_tokens, 1 / report.rate if report.rate else s_per_token, takes_work)

    # -- attempts -------------------------------------------------------------------------------------------------

    def opened(self, sequence: GrowingSequence, choice: Choice, n_cached_pages: int) -> None:
        """An attempt of a sequence goes to a replica that has so many pages of its prompt."""
        name, now_s = choice.name, self._post.now_s()
        n_tokens = max(self.work_of(sequence) - n_cached_pages * PAGE_TOKENS, 1)
        self.work.opened(name, sequence.attempt, n_tokens, now_s, self.caller_of(sequence))
        if self.metrics is not None:
            self.metrics.chosen(name, choice.why)
        is_probe = choice.why is ChoiceReason.PROBE
        self._has_several = self._has_several or len(self._post.living("scheduler")) > 1
        if is_probe or self._has_several:
            n_before = self.work.load_tokens(name, self._reported_before(name), now_s)
            self.health.sent(
                name,
                sequence.attempt,
                n_before,
                len(sequence.ids),
                now_s,
                is_probe=is_probe,
                least_s=self._least_s(n_before - n_tokens),
            )

    def _reported_before(self, name: str) -> int | None:
        """Reported tokens that a new sequence waits for at a replica; None: it has reported nothing. What runs delays a first
        token little, unless others wait: then it holds the slots or pages that are waited for."""
        report = self._reports.of(name)
        if report is None:
            return None
        return report.waiting_tokens + (report.running_tokens if report.waiting else 0)

    def _least_s(self, n_before: int) -> float:
        """What so many tokens of others take at the quickest replica; 0 if no rate is known. Their output is most of it, so the
        pace of first tokens that waited for nobody says little of it. A replica that becomes slow is not excused by that."""
        if n_before <= 0:
            return 0.0
        reports = [one for name in self._post.living("scheduler") if (one := self._reports.of(name)) is not None]
        rate = max((one.rate for one in reports), default=0.0)
        return n_before / rate if rate else 0.0

    def began(self, sequence: GrowingSequence) -> None:
        """A sequence has its first token."""
        self.health.began(sequence.scheduler, sequence.attempt, len(sequence.ids), self._post.now_s())

    def closing(self, sequence: GrowingSequence) -> None:
        """The open attempt of a sequence is over: it has ended, or is taken away."""
        name, attempt, n_ids = sequence.scheduler, sequence.attempt, len(sequence.ids)
        self.work.closed(name, attempt, self.caller_of(sequence))
        self.health.closed(name, attempt, n_ids, self._post.now_s())
        if n_ids:
            self.work.answered(n_ids)

    def failed(self, name: str, attempt: int, why: str) -> None:
        """A replica has refused or lost an attempt that is still open."""
        if self.health.failed(name, attempt, self._post.now_s()):
            self._opens(name, why)

    def died(self, name: str) -> None:
        """A scheduler has died, and not because somebody has killed it."""
        if self.health.died(name, self._post.now_s()):
            self._opens(name, "deaths")

    def look(self, name: str, n_ids_of: Callable[[int], int]) -> None:
        """Learn from the waiting attempts of a replica. `n_ids_of(attempt)`: the tokens that its sequence has now."""
        _, opens = self.health.look(name, n_ids_of, self._post.now_s())
        if opens:
            self._opens(name, "slow")

    def _opens(self, name: str, why: str) -> None:
        self._log.warning("new sequences avoid a replica for a while", replica=name, why=why)
        if self.metrics is not None:
            self.metrics.openings.labels(name, why).inc()

    def statistics(self) -> dict[str, float]:
        """For `supervisor status`: the breakers that are not closed. The metric of their states is set too."""
        now_s = self._post.now_s()
        states = {name: self.health.state(name, now_s) for name in self._post.living("scheduler")}
        if self.metrics is not None:
            for name, state in states.items():
                self.metrics.breaker_state.labels(name).set(state.value)
        return {"open_breakers": sum(state is not BreakerState.CLOSED for state in states.values())}
