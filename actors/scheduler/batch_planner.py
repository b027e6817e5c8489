"""What the next step computes, decided from the queues, the page ledger, the token budget and the drafts. Pure.

Tokens are scheduled, not phases (the idea of vLLM's scheduler): first one token for each decoding sequence, then prefill chunks
of running sequences, then waiting sequences as long as slots, pages and the token budget last; each group in the order of the
queues. A decoding sequence that finds no page takes those of a victim, which waits and is computed again. A waiting sequence
that does not fit stops admission, so that smaller ones cannot overtake a large one for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from actors.pages.page_ledger import PageLedger
from actors.scheduler.drafts import ReceivedDrafts
from actors.scheduler.policy import VictimChoice
from actors.scheduler.queues import SequenceQueues
from actors.scheduler.sequence import Sequence, State
from actors.scheduler.settings import SchedulerSettings
from messages.steps import PAGE_TOKENS, EngineCapacity, NewSequence, Plan
from messages.wire.arrays import EMPTY_I32, int32s


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a plan, kept until its result has come."""

    sequence: Sequence
    stay: int  # the sequence's when it was planned
    slot: int  # the sequence's when it was planned
    start: int  # first position
    count: int  # positions
    samples: bool
    drafts: list[int]  # ids


RowEnd = tuple[Row, int]  # a row, and the number of positions of its sequence that are complete once its step has run


@dataclass
class PlanBuilder:
    """The plan that is being made: its rows and the differences that the ranks need to know."""

    rows: list[Row] = field(default_factory=list)
    entered: list[Sequence] = field(default_factory=list)
    page_slots: list[int] = field(default_factory=list)
    page_indices: list[int] = field(default_factory=list)
    page_ids: list[int] = field(default_factory=list)
    n_tokens: int = 0
    n_cached: int = 0
    n_preempted: int = 0

    _with_rows: set[int] = field(default_factory=set)  # numbers of the sequences in `rows`, as far as they were asked for

    def has_row(self, sequence: Sequence) -> bool:
        """Does this plan compute anything of a sequence? Constant time on average: each row is entered into the set once, and
        only when pages are short."""
        n_entered = len(self._with_rows)  # a plan has one row for a sequence
        if n_entered < len(self.rows):
            self._with_rows.update(row.sequence.number for row in self.rows[n_entered:])
        return sequence.number in self._with_rows

    def message(self, epoch: int, step: int, n_steps: int) -> Plan:
        """The message for the ranks."""
        rows, entered = self.rows, [s for s in self.entered if s.state is State.RUNNING]
        drafts = [token for row in rows for token in row.drafts]
        return Plan(
            epoch=epoch,
            step=step,
            n_steps=n_steps,
            new=[_entry_of(sequence) for sequence in entered],
            new_tokens=np.concatenate([s.tokens() for s in entered]) if entered else EMPTY_I32,
            page_slots=int32s(self.page_slots),
            page_indices=int32s(self.page_indices),
            page_ids=int32s(self.page_ids),
            row_slots=int32s([row.slot for row in rows]),
            row_starts=int32s([row.start for row in rows]),
            row_counts=int32s([row.count for row in rows]),
            row_samples=int32s([row.samples for row in rows]),
            draft_counts=int32s([len(row.drafts) for row in rows]) if drafts else EMPTY_I32,
            draft_ids=int32s(drafts),
        )


@dataclass(frozen=True)
class PlannedStep:
    """A finished plan and what the scheduler keeps of it."""

    plan: Plan
    rows: list[Row]  # in the order of the plan
    sampling: list[Row]  # those that sample, in the order of the result
    n_tokens: int
    n_cached: int  # tokens of entering sequences that need no prefill
    n_preempted: int


def _entry_of(sequence: Sequence) -> NewSequence:
    """What the ranks need to know of a sequence that enters a slot."""
    min_tokens = sequence.terms.min_tokens
    is_early = sequence.n_generated < min_tokens
    return NewSequence(
        slot=sequence.slot,
        n_tokens=sequence.known,
        n_prompt=sequence.n_prompt,
        sampling=sequence.sampling,
        min_tokens=min_tokens if is_early else 0,
        banned_tokens=sequence.terms.stop_tokens if is_early else [],
    )


class BatchPlanner:
    """See the file's header."""

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

    def plan(
        self,
        epoch: int,
        step: int,
        may_run: Callable[[Sequence], bool],
        drafts: ReceivedDrafts | None = None,
        most_steps: int = 1,
    ) -> PlannedStep | None:
        """The next step, or None when nothing can be computed now. Updates the ledger and the sequences as if it had been sent.

        Args:
            epoch, step: of the plan.
            may_run: may this sequence be planned? Not when its gateway has no credit.
            drafts: None when drafts cost more than they give.
            most_steps: that the plan may grant.
        """
        builder = PlanBuilder()
        has_prefill = False
        for sequence in list(self._queues.running):
            n_unplanned = sequence.n_unplanned
            has_prefill |= n_unplanned > 1
            if n_unplanned == 1 and sequence.state is State.RUNNING and may_run(sequence):
                self._plan_decode(builder, sequence, drafts)
        if has_prefill:
            for sequence in self._queues.running:
                if sequence.n_unplanned > 1 and may_run(sequence):
                    self._plan_prefill(builder, sequence)
        if not builder.n_preempted:
            self._admit(builder, may_run)
        if not builder.rows:
            return None
        n_steps = self._lease(builder, most_steps)
        self._ledger.commit_plan()
        return PlannedStep(
            plan=builder.message(epoch, step, n_steps),
            rows=builder.rows,
            sampling=[row for row in builder.rows if row.samples],
            n_tokens=builder.n_tokens * n_steps,
            n_cached=builder.n_cached,
            n_preempted=builder.n_preempted,
        )

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
        if sequence.n_samples_left > 0 and budget > 0:
            self._add_row(builder, sequence, min(sequence.n_unplanned, budget), [])

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
        sequence.n_sealed = len(shared)
        self._queues.admit(sequence)
        builder.entered.append(sequence)
        builder.page_slots += [sequence.slot] * len(shared)
        builder.page_indices += range(len(shared))
        builder.page_ids += shared
        taken = self._take_pages(builder, sequence, sequence.known)
        assert taken, "admission counted the pages"
        self._plan_prefill(builder, sequence)

    def _shared_pages(self, sequence: Sequence) -> list[int] | None:
        """Pages of the longest prefix that the ledger can share now; None when the next step can share more, so waiting pays.

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
        """Allocate pages for positions [0, up_to) of a sequence, preempting others. False: it was preempted itself."""
        for _ in range(sequence.pages_short(up_to)):
            page = self._ledger.allocate()
            while page is None:
                victim = self._victims.choose(self._queues.running, builder.has_row) or sequence
                self._ledger.release(self._queues.preempt(victim))
                builder.n_preempted += 1
                if victim is sequence:
                    return False
                page = self._ledger.allocate()
            builder.page_slots.append(sequence.slot)
            builder.page_indices.append(len(sequence.pages))
            builder.page_ids.append(page)
            sequence.pages.append(page)
        return True

    def _add_row(self, builder: PlanBuilder, sequence: Sequence, count: int, proposed: list[int]) -> None:
        samples = bool(proposed) or count == sequence.n_unplanned
        builder.rows.append(Row(sequence, sequence.stay, sequence.slot, sequence.planned, count, samples, proposed))
        builder.n_tokens += count
        if proposed:
            sequence.is_verifying = True  # the result says how many positions count
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
