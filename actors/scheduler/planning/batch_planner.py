"""Decides what the next step computes, from the queues, the page ledger, the token budget and the drafts. Pure.

Tokens are scheduled, not phases (the idea of vLLM's scheduler): first one token for each decoding sequence, then prefill chunks
of running sequences, then waiting sequences as long as slots, pages and the token budget last; each group in the order of the
queues. If a decoding sequence finds no page, a victim is preempted: it loses its pages, waits, and is computed again. A waiting
sequence that does not fit stops admission, so that smaller ones cannot overtake a large one for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.pages.page_ledger import PageLedger
from actors.scheduler.planning.drafts import ReceivedDrafts
from actors.scheduler.planning.plan_builder import PlanBuilder, PlannedStep, Row
from actors.scheduler.sequences.policy import VictimChoice
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence, State
from actors.scheduler.settings import SchedulerSettings
from messages.steps import PAGE_TOKENS, EngineCapacity


class BatchPlanner:
    """Plans the steps of one gang. `victims` chooses the sequence to preempt when pages run short."""

    def __init__(
        self,
        queues: SequenceQueues,
        ledger: PageLedger,
        capacity: EngineCapacity,
        victims: VictimChoice,
        settings: SchedulerSettings,
    ) -> None:
        self._queues, self._ledger, self._capacity, self._victims = queues, ledger, capacity, victims
        self._max_sequence_tokens = capacity.max_sequence_tokens
        self._prefix_reuse, self._draft_depth = settings.prefix_reuse, settings.draft_depth
        self._is_takeover = bool(queues.running)  # they stayed in their slots when the last gang died; this one must enter them

    def plan(
        self,
        epoch: int,
        step: int,
        may_run: Callable[[Sequence], bool],
        drafts: ReceivedDrafts | None = None,
        most_steps: int = 1,
    ) -> PlannedStep | None:
        """The next step, or None when nothing can be computed now. The ledger and the sequences count it as sent.

        Args:
            epoch, step: of the plan.
            may_run: True for a sequence that may be planned; False for one whose gateway has no credit.
            drafts: None when drafts cost more than they give.
            most_steps: the most steps that the plan may grant.
        """
        builder = PlanBuilder()
        if self._is_takeover:
            builder.entered, drafts = list(self._queues.running), None
        has_prefill = False
        for sequence in list(self._queues.running):
            n_unplanned = sequence.n_unplanned
            has_prefill |= n_unplanned > 1
            if n_unplanned == 1 and sequence.state is State.RUNNING and may_run(sequence):
                self._plan_decode(builder, sequence, drafts)
        if has_prefill:
            for sequence in list(self._queues.running):
                if sequence.n_unplanned > 1 and sequence.state is State.RUNNING and may_run(sequence):
                    self._plan_prefill(builder, sequence)
        if not builder.n_preempted:
            self._admit(builder, may_run)
        if not builder.rows:
            return None
        if self._is_takeover:
            builder.restate_pages()
            self._is_takeover = False
        n_steps = self._lease(builder, most_steps)
        self._ledger.commit_plan()
        return builder.finish(epoch, step, n_steps)

    def seal_known(self, sequence: Sequence, is_planned: bool) -> None:
        """Tell the ledger the content of every full page of known tokens whose positions are planned; `is_planned`: by the plan
        that is being made."""
        if not self._prefix_reuse:
            return
        complete = min(sequence.planned, sequence.known) // PAGE_TOKENS
        for index in range(sequence.n_sealed, complete):
            self._ledger.seal(sequence.pages[index], *sequence.page_content(index), is_planned=is_planned)
        sequence.n_sealed = max(sequence.n_sealed, complete)

    # -- the three kinds of rows -------------------------------------------------------------------------------------

    def _plan_decode(self, builder: PlanBuilder, sequence: Sequence, drafts: ReceivedDrafts | None) -> None:
        budget = self._capacity.max_step_tokens - builder.n_tokens
        if sequence.is_verifying or sequence.n_samples_left <= 0 or budget <= 0:
            return
        proposed: list[int] = []
        if drafts is not None and sequence.terms.speculation:
            if sequence.in_flight:
                if drafts.extends_past_flight(sequence):
                    return
            else:
                depth = min(
                    self._draft_depth, sequence.n_samples_left - 1, budget - 1, self._max_sequence_tokens - sequence.known - 1
                )
                proposed = drafts.take(sequence, depth) if depth > 0 else []
        up_to = sequence.planned + 1 + len(proposed)
        if sequence.pages_short(up_to) <= 0 or self._take_pages(builder, sequence, up_to):
            self._add_row(builder, sequence, 1 + len(proposed), proposed)

    def _plan_prefill(self, builder: PlanBuilder, sequence: Sequence) -> None:
        budget = self._capacity.max_step_tokens - builder.n_tokens
        if sequence.n_samples_left <= 0 or budget <= 0:
            return
        count = min(sequence.n_unplanned, budget)
        up_to = sequence.planned + count  # admission took these pages, but the loss of a gang may have taken them back
        if sequence.pages_short(up_to) <= 0 or self._take_pages(builder, sequence, up_to):
            self._add_row(builder, sequence, count, [])

    def _admit(self, builder: PlanBuilder, may_run: Callable[[Sequence], bool]) -> None:
        for sequence in list(self._queues.waiting):
            if not self._queues.has_slot or builder.n_tokens >= self._capacity.max_step_tokens:
                return
            if not may_run(sequence):
                continue
            shared = self._shared_pages(sequence)
            if shared is None:
                continue
            needed = sequence.pages_short(sequence.known) - len(shared)
            reserve = len(self._queues.running)  # a page for each running sequence, so that admission causes no preemption
            self._ledger.acquire(shared)
            if needed + reserve > self._ledger.n_available and (self._queues.running or needed > self._ledger.n_available):
                self._ledger.release(shared)
                return
            self._enter(builder, sequence, shared)

    def _enter(self, builder: PlanBuilder, sequence: Sequence, shared: list[int]) -> None:
        self._ledger.count_hits(shared)
        sequence.pages = list(shared)
        sequence.planned = len(shared) * PAGE_TOKENS
        builder.n_cached += sequence.planned
        if sequence.stay == 0:
            sequence.n_cached = sequence.planned
        sequence.n_sealed = sequence.n_shared = len(shared)
        self._queues.admit(sequence)
        builder.entered.append(sequence)
        builder.add_pages(sequence.slot, 0, shared)
        taken = self._take_pages(builder, sequence, sequence.known)
        assert taken, "admission counted the pages"
        self._plan_prefill(builder, sequence)

    def _shared_pages(self, sequence: Sequence) -> list[int] | None:
        """Pages of the longest prefix that the ledger can share now; None if it should wait for one step, to share more.

        At least one token is left to compute, because its logits are needed.
        """
        shared: list[int] = []
        if not self._prefix_reuse:
            return shared
        for index in range((sequence.known - 1) // PAGE_TOKENS):
            content = sequence.page_content(index)
            page = self._ledger.find(*content)
            if page is None:
                return None if self._ledger.is_planned(content[0]) else shared
            shared.append(page)
        return shared

    # -- pages, rows, lease -----------------------------------------------------------------------------------

    def _take_pages(self, builder: PlanBuilder, sequence: Sequence, up_to: int) -> bool:
        """Allocate pages for positions [0, up_to) of a sequence, preempting others. False if it was preempted itself."""
        first_index = len(sequence.pages)
        for _ in range(sequence.pages_short(up_to)):
            page = self._ledger.allocate()
            while page is None:
                victim = self._victims.choose(self._queues.running, builder.has_row) or sequence
                self._ledger.release(self._queues.preempt(victim))
                builder.n_preempted += 1
                if victim is sequence:
                    return False
                page = self._ledger.allocate()
            sequence.pages.append(page)
        builder.add_pages(sequence.slot, first_index, sequence.pages[first_index:])
        return True

    def _add_row(self, builder: PlanBuilder, sequence: Sequence, count: int, proposed: list[int]) -> None:
        samples = bool(proposed) or count == sequence.n_unplanned
        builder.rows.append(Row(sequence, sequence.stay, sequence.slot, sequence.planned, count, samples, proposed))
        builder.n_tokens += count
        if proposed:
            sequence.is_verifying = True  # the result says how many of these positions are valid
            return
        sequence.planned += count
        sequence.in_flight += samples
        if sequence.planned >= (sequence.n_sealed + 1) * PAGE_TOKENS:  # tested here, because most rows complete no page
            self.seal_known(sequence, is_planned=True)

    def _lease(self, builder: PlanBuilder, most_steps: int) -> int:
        """Steps that this plan grants: more than one only when all running sequences decode and none waits."""
        if most_steps == 1 or self._queues.waiting or builder.entered:
            return 1
        if any(row.count != 1 or not row.samples for row in builder.rows) or len(builder.rows) != len(self._queues.running):
            return 1
        n_steps = 1 + min(most_steps - 1, *(row.sequence.n_samples_left for row in builder.rows))
        short = sum(row.sequence.pages_short(row.start + n_steps) for row in builder.rows)
        if n_steps == 1 or short > self._ledger.n_available:
            return 1
        for row in builder.rows:
            self._take_pages(builder, row.sequence, row.start + n_steps)
            row.sequence.planned += n_steps - 1
            row.sequence.in_flight += n_steps - 1
        return n_steps
