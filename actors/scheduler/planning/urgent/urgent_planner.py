"""Plans the step of urgent prompts that do not wait for the steps in flight. Pure.

An urgent plan is sent whatever is in flight, and runs beside it. So it takes only what no plan in flight may still write: slots
that are free, and pages of which the plans in flight know nothing. It shares pages whose content is there already, displaces
nobody and copies nothing. What finds no room goes the usual way, and so do long prompts: beside others they would take longer
than they save. While urgent requests are to be expected, a few slots are kept free for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.plan_builder import PlanBuilder, PlannedStep
from actors.scheduler.planning.rows.row import Row
from actors.scheduler.planning.step_times import StepTimes
from actors.scheduler.planning.step_tracker import StepTracker
from actors.scheduler.planning.urgent.plans_beside import PlansBeside, slots_of
from actors.scheduler.sequences.permission import MayRun
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from messages.steps import PAGE_TOKENS, EngineCapacity

_KEPT_SLOTS = 2
_KEPT_PART = 8  # but at most one slot in so many
_LEAST_TOKENS = 2  # of a row: those of one token share memory with the rows of other steps

Seal = Callable[[Sequence, bool], None]  # as `BatchPlanner.seal_known`


class UrgentPlanner:
    """The urgent plans of one gang. seal: tells the ledger what the pages of a sequence hold. times: of steps that have
    ended."""

    def __init__(
        self,
        queues: SequenceQueues,
        ledger: ForgettingLedger,
        capacity: EngineCapacity,
        settings: SchedulerSettings,
        times: StepTimes,
        tracker: StepTracker,
        seal: Seal,
    ) -> None:
        self._queues, self._ledger, self._times, self._tracker, self._seal = queues, ledger, times, tracker, seal
        self._most_tokens = min(settings.urgent_tokens, capacity.beside_tokens, capacity.max_step_tokens)
        self._is_reusing = settings.prefix_reuse
        self._has_tails = settings.prefix_reuse and capacity.copies_pages
        self._n_kept = min(_KEPT_SLOTS, capacity.n_slots // _KEPT_PART)
        self._plans = PlansBeside()

    def plan(self, may_run: MayRun) -> PlannedStep | None:
        """The urgent plan that is to be sent now; None if there is none. The ledger and the sequences count it as sent."""
        if not self._most_tokens:
            return None
        self._queues.n_kept_slots = 0
        if not self._queues.policy.awaits_urgent():
            return None
        first = self._first_urgent()
        if first is None:
            self._queues.n_kept_slots = self._n_kept
        elif not self._tracker.has_urgent and self._tracker.ordinary_plans:
            return self._plan_with(first, may_run)
        return None

    def _plan_with(self, first: Sequence | None, may_run: MayRun) -> PlannedStep | None:
        """The plan of this sequence and the urgent ones that come after it; None if it finds no room."""
        in_flight = self._tracker.planned()
        written = self._plans.pages(in_flight)
        if written is None:
            return None
        builder, slots = PlanBuilder(self._times), slots_of(in_flight)
        while first is not None and may_run(first) and self._can(first) and self._enter(builder, first, written, slots):
            first = self._first_urgent()
        return self._finish(builder) if builder.rows else None

    def sent(self, planned: PlannedStep) -> None:
        """A plan has been sent. To be called before another one is made."""
        if self._most_tokens and not planned.plan.is_urgent and self._queues.policy.awaits_urgent():
            self._plans.sent(planned)

    def _first_urgent(self) -> Sequence | None:
        """The sequence that is first in the order of those that wait, if it may keep a running one waiting."""
        policy = self._queues.policy
        first = next(iter(self._queues.waiting.first(1)), None)
        if first is None or not policy.may_hurry(first):
            return None
        return first if any(policy.is_urgent(first, one) for one in self._queues.running) else None

    def _can(self, sequence: Sequence) -> bool:
        """True if a waiting sequence needs nothing that an urgent step cannot do."""
        terms, stay = sequence.terms, sequence.stay
        is_plain = terms.grammar is None and sequence.prompt_logprobs_due < 0 and terms.page_share >= 1.0
        awaits = sequence.leader is not None or stay in (sequence.loaded_stay, sequence.disk_stay, sequence.borrowed_stay)
        return is_plain and not awaits and sequence.n_samples_left > 0

    def _enter(self, builder: PlanBuilder, sequence: Sequence, written: set[int], slots: set[int]) -> bool:
        """Move a waiting sequence into a slot, with a row for all its tokens. False if it finds no room."""
        shared = self._prefix(sequence)
        start = len(shared) * PAGE_TOKENS
        count = sequence.known - start
        if not _LEAST_TOKENS <= count <= self._most_tokens - builder.n_tokens or not self._queues.has_slot_beside(slots):
            return False
        self._ledger.acquire(shared)
        pages = self._take_pages(sequence.pages_short(sequence.known) - len(shared), written)
        if pages is None:
            self._ledger.release(shared)
            return False
        sequence.pages, sequence.planned = shared + pages, start
        sequence.n_sealed = sequence.n_shared = len(shared)
        if sequence.stay == sequence.cached_stay:
            sequence.n_cached = start
            builder.n_cached += min(start, sequence.n_prompt)
        self._queues.start(sequence, beside=slots)
        self._ledger.count_hits(shared)
        builder.entered.append(sequence)
        builder.add_pages(sequence.slot, 0, sequence.pages)
        builder.count_prompt(start, count)
        builder.rows.append(Row(sequence, sequence.stay, sequence.slot, start, count, True, []))
        builder.n_tokens += count
        sequence.planned, sequence.in_flight = sequence.known, 1
        self._seal_pages(sequence)
        return True

    def _prefix(self, sequence: Sequence) -> list[int]:
        """The pages of its first tokens whose content is there, so that at least `_LEAST_TOKENS` are left to compute."""
        pages: list[int] = []
        n_pages = min(sequence.known - _LEAST_TOKENS, sequence.n_reusable) // PAGE_TOKENS if self._is_reusing else 0
        for content in sequence.page_contents(max(n_pages, 0)):
            page = self._ledger.find(*content)
            if page is None or not self._ledger.is_applied(content[0]):
                break
            pages.append(page)
        return pages

    def _take_pages(self, n_pages: int, written: set[int]) -> list[int] | None:
        """So many pages that no plan in flight writes or copies; None if there are too few, with one for each running
        sequence."""
        n_avoided = sum(not self._ledger.is_held(page) for page in written)
        if n_pages + n_avoided + len(self._queues.running) > self._ledger.n_available:
            return None
        taken, left = list[int](), list[int]()
        while len(taken) < n_pages:
            page = self._ledger.allocate()
            assert page is not None, "the available pages were counted"
            (left if page in written else taken).append(page)
        self._ledger.release(left)
        return taken

    def _seal_pages(self, sequence: Sequence) -> None:
        self._seal(sequence, True)
        if self._has_tails:
            index = (sequence.known - 1) // PAGE_TOKENS
            self._ledger.tails.add(sequence.pages[index], *sequence.known_part(index))

    def _finish(self, builder: PlanBuilder) -> PlannedStep:
        self._ledger.commit_plan()
        if self._queues.policy.counts:
            self._queues.policy.planned([row.sequence for row in builder.rows], [row.count for row in builder.rows], 0)
        planned = builder.finish(self._tracker.epoch, self._tracker.next_step, 1)
        return replace(planned, plan=msgspec.structs.replace(planned.plan, is_urgent=True))
