"""Decides whether more may be accepted now: by the state of the server, the number of sequences, the tokens that wait, the
shares of callers and the level of degradation. What is accepted already is never refused. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.gateway.journal.journal import Journal
from actors.gateway.overload.caller_shares import CallerShares
from actors.gateway.overload.measures import degrade
from actors.gateway.overload.outlook import Outlook
from actors.gateway.overload.overload_metrics import OverloadMetrics
from actors.gateway.overload.queued_tokens import QueuedTokens
from actors.gateway.requests.refusals import Refusal, journal_unavailable
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.settings import GatewaySettings
from messages.generation.replica_load import DegradationLevel
from messages.generation.terms import Terms

_LEAST_TOLD_MS = 1000  # a shorter wait is not told
_SHED_S = 5.0  # Retry-After of what is shed, at least: as long as a level lasts


class AdmissionGate:
    """Counts sequences and the tokens of those that wait. A request that is alone is always accepted."""

    def __init__(
        self,
        settings: GatewaySettings,
        journal: Journal,
        loads: ReplicaLoads,
        candidates: Callable[[], list[str]],
        metrics: OverloadMetrics,
    ) -> None:
        """`loads`: as schedulers have reported them. `candidates`: the schedulers that new requests go to."""
        self._settings, self._journal, self._metrics = settings, journal, metrics
        self._limit = settings.max_active_requests
        self._sequences = CallerShares(self._limit, are_told_apart=settings.names_callers)
        self.queued = QueuedTokens(settings.max_queued_tokens, are_told_apart=settings.names_callers)
        self.outlook = Outlook(loads, candidates, lambda: self.queued.shares.n_held)
        self.n_active = 0  # accepted, without a visible ending
        self.n_reserved = 0  # still being tokenised
        self.is_draining = False
        self.was_ready = False  # a scheduler has been connected since this server started
        self.was_other_ready = False  # the same of one of another model than the main one

    def check_state(self) -> None:
        """Return if the server accepts requests now, whatever their number. Raises: Refusal."""
        if self.is_draining:
            raise Refusal("unavailable", "the server is draining: it accepts no new requests", retry_after_s=5.0)
        if not self._journal.is_healthy:
            raise journal_unavailable()
        if not self.was_other_ready:
            self.check_main()

    def scheduler_up(self, model: int) -> None:
        """A scheduler of the model with this number is ready."""
        if model:
            self.was_other_ready = True
        else:
            self.was_ready = True

    def check_main(self) -> None:
        """Return if a scheduler of the main model has been ready. Raises: Refusal."""
        if not self.was_ready:
            raise Refusal("unavailable", "the server is starting: no scheduler is ready yet", retry_after_s=2.0)

    def check(self, n_sequences: int) -> None:
        """Return if `n_sequences` more may be accepted now, whoever asks. Raises: Refusal."""
        self.check_state()
        n_present = self.n_active + self.n_reserved
        if n_present and n_present + n_sequences > self._limit:
            bound = f"at most {self._limit} that are active (gateway.max_active_requests)"
            detail = f"sequences: expected {bound}, got {n_present} and {n_sequences} more"
            self._metrics.refused("sequences")
            raise Refusal("overloaded", detail, retry_after_s=1.0, limit=f"max_active_requests={self._limit}")

    def check_caller(self, n_sequences: int, terms: Terms, *, is_of_main: bool = True) -> None:
        """Return if the caller of these terms may have `n_sequences` more now. `is_of_main`: they go to the main model, whose
        replicas alone have levels. Raises: Refusal."""
        self._check_share(n_sequences, terms.caller, terms.weight)
        if is_of_main and self.outlook.level is DegradationLevel.SHEDDING:
            self._check_shed(terms)

    def _check_share(self, n_sequences: int, caller: bytes, weight: float) -> None:
        shares = self._sequences
        if self._settings.names_callers and shares.n_held and n_sequences > (room := shares.room(caller, weight)):
            held = shares.held_by(caller)
            what = "sequences of one caller that are active or not read to their end"
            bound = f"expected at most {held + room} {what}, its share of {self._limit}"
            self._metrics.refused("caller_sequences")
            got, limit = f"{bound}; got {held} and {n_sequences} more", f"caller_sequences={held + room}"
            raise Refusal("caller_share", got, retry_after_s=1.0, limit=limit)

    def let_in(self, spec: RequestSpec) -> RequestSpec:
        """A new request as the present level of degradation lets it be, with the wait that it has to expect."""
        wait_ms = int(self.outlook.wait_s * 1e3)
        waiting = msgspec.structs.replace(spec, queue_wait_ms=wait_ms) if wait_ms >= _LEAST_TOLD_MS else spec
        return degrade(waiting, self.outlook.level, self._settings)

    def check_tokens(self, specs: Sequence[RequestSpec]) -> None:
        """Return if these requests of one caller may wait beside those that wait already. Raises: Refusal."""
        shares = self.queued.shares
        if not specs or not shares.n_held:
            return
        terms, price = specs[0].terms, sum(map(self.queued.price_of, specs))
        room = shares.room(terms.caller, terms.weight)
        if price <= room:
            return
        what = "tokens (prompts and expected output) in requests without a token yet"
        if price > shares.n_free:
            self._metrics.refused("queue_tokens")
            bound = f"queue: expected at most {shares.limit} {what}, got {shares.n_held} and {price} more"
            again_s, limit = self._drained_s(price - shares.n_free), f"queue_tokens={shares.limit}"
            raise Refusal("queue_full", bound + self._wait_text(), retry_after_s=again_s, limit=limit)
        self._metrics.refused("caller_tokens")
        held = shares.held_by(terms.caller)
        share = f"queue: expected at most {held + room} {what} of one caller, its share of {shares.limit}"
        got = f"; got {held} and {price} more{self._wait_text()}"
        limit = f"caller_tokens={held + room}"
        raise Refusal("caller_share", share + got, retry_after_s=self._drained_s(price - room), limit=limit)

    def reserve(self, n_sequences: int, terms: Terms) -> None:
        """Count sequences that were checked while they are tokenised. Call `release` afterwards, accepted or not."""
        self.n_reserved += n_sequences
        self._sequences.add(terms.caller, terms.weight, n_sequences)

    def release(self, n_sequences: int, terms: Terms) -> None:
        """End a reservation made with `reserve`."""
        self.n_reserved -= n_sequences
        self._sequences.release(terms.caller, n_sequences)

    def begin_call(self, caller: bytes, weight: float, *, was_accepted: bool) -> None:
        """Count a call for vectors like one sequence, until `end_call`. `was_accepted`: by an earlier process; it is not
        refused. Raises: Refusal."""
        if not was_accepted:
            self.check(1)
            self._check_share(1, caller, weight)
        self.n_active += 1
        self._sequences.add(caller, weight, 1)

    def end_call(self, caller: bytes) -> None:
        """A call for vectors is over."""
        self.n_active -= 1
        self._sequences.release(caller, 1)

    def accepted(self, request: Request) -> None:
        """A request is accepted, or taken over from the journal."""
        self.n_active += request.n_open
        request.n_held, request.on_unwatched = request.n_open, self.let_go
        self._sequences.add(request.counted_for, request.spec.terms.weight, request.n_held)
        self.queued.arrived(request)
        self._metrics.accepted(request.spec.degraded)

    def ended(self, sequence: GrowingSequence) -> None:
        """The ending of a sequence is visible."""
        self.n_active -= 1
        self.queued.ended(sequence)

    def let_go(self, request: Request) -> None:
        """A request is over, or a reader of it has left: it counts for its caller until both are so, because what its client
        does not read stays in memory."""
        if request.is_over and not request.watchers:
            self._sequences.release(request.counted_for, request.n_held)
            request.n_held = 0

    def _check_shed(self, terms: Terms) -> None:
        """Shed a request of low priority, and any request of a caller that has its share of the queue."""
        shares = self.queued.shares
        fair = shares.fair_share(terms.caller)
        if terms.priority <= 0 and fair is None:
            return
        self._metrics.refused("shed")
        why, limit = f"a priority of at most 0, got {terms.priority}", "priority=0"
        if terms.priority <= 0:
            what = "tokens (prompts and expected output) in requests of one caller without a token yet"
            why = f"less than {fair} {what}, its fair share of {shares.n_held}; got {shares.held_by(terms.caller)}"
            limit = f"fair_share={fair}"
        detail = f"the server sheds load (level {int(self.outlook.level)} of degradation): expected {why}"
        retry_s = max(min(self.outlook.wait_s, 60.0), _SHED_S)
        raise Refusal("shed", detail + self._wait_text(), retry_after_s=retry_s, limit=limit)

    def _drained_s(self, n_tokens: int) -> float:
        return self.outlook.retry_after_s(n_tokens)

    def _wait_text(self) -> str:
        wait_s = self.outlook.wait_s
        return f"; what waits takes about {wait_s:.0f} s" if wait_s >= 1.0 else ""
