"""What the next step computes: given who waits and runs, the page ledger, the token budget and the drafts at hand.

Decodes first, oldest first; then prefill chunks of running sequences; then the waiting ones, as long as slots, pages and
budget last. A decode that finds no page takes the pages of the youngest sequence that has no row yet, which then waits and is
computed again. Works on plain objects: no await, no socket, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from actors.pages.page_ledger import PageLedger
from actors.scheduler.drafts import ReceivedDrafts
from actors.scheduler.policy import VictimChoice
from actors.scheduler.roster import Roster
from actors.scheduler.sequence import Sequence, State
from actors.scheduler.settings import SchedulerSettings
from messages.steps import PAGE_TOKENS, EngineCapacity, NewSequence, Plan
from messages.wire.arrays import EMPTY_I32, int32s


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a plan, as the scheduler remembers it until the result is there."""

    sequence: Sequence
    life: int  # of the sequence when it was planned
    slot: int  # then
    start: int
    count: int
    samples: bool
    drafts: list[int]


@dataclass
class Draft:
    """The plan in the making."""

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


@dataclass(frozen=True)
class PlannedStep:
    """A finished plan and what to remember of it."""

    plan: Plan
    rows: list[Row]  # in the order of the plan
    sampling: list[Row]  # those that sample, in the order of the result
    n_tokens: int
    n_cached: int  # tokens of entering sequences that need no prefill
    n_preempted: int


class BatchPlanner:
    """See the file's header."""

    def __init__(
        self,
        roster: Roster,
        ledger: PageLedger,
        capacity: EngineCapacity,
        victims: VictimChoice,
        settings: SchedulerSettings,
    ) -> None:
        self._roster, self._ledger, self._capacity, self._victims = roster, ledger, capacity, victims
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
        """The next step, or None when nothing can be computed now. The ledger and the sequences are moved accordingly.

        `may_run` says whether a sequence's gateway has credit; `drafts` is None when drafts cost more than they give;
        `most_steps` of a lease.
        """
        draft = Draft()
        has_prefill = False
        for sequence in list(self._roster.running):
            behind = sequence.behind
            has_prefill |= behind > 1
            if behind == 1 and sequence.state is State.RUNNING and may_run(sequence):
                self._plan_decode(draft, sequence, drafts)
        if has_prefill:
            for sequence in self._roster.running:
                if sequence.behind > 1 and may_run(sequence):
                    self._plan_prefill(draft, sequence)
        if not draft.n_preempted:
            self._admit(draft, may_run)
        if not draft.rows:
            return None
        n_steps = self._lease(draft, most_steps)
        self._ledger.commit_plan()
        return PlannedStep(
            plan=self._message(draft, epoch, step, n_steps),
            rows=draft.rows,
            sampling=[row for row in draft.rows if row.samples],
            n_tokens=draft.n_tokens * n_steps,
            n_cached=draft.n_cached,
            n_preempted=draft.n_preempted,
        )

    def seal_known(self, sequence: Sequence, is_in_the_making: bool) -> None:
        """Let the ledger know every full page of known tokens that is (or is about to be) computed."""
        if not self._prefix_reuse:
            return
        complete = min(sequence.planned, sequence.known) // PAGE_TOKENS
        for index in range(sequence.n_sealed, complete):
            self._ledger.seal(sequence.pages[index], *sequence.page_content(index), is_fresh=is_in_the_making)
        sequence.n_sealed = max(sequence.n_sealed, complete)

    # -- the three kinds of rows -------------------------------------------------------------------------------------

    def _plan_decode(self, draft: Draft, sequence: Sequence, drafts: ReceivedDrafts | None) -> None:
        budget = self._capacity.max_step_tokens - draft.n_tokens
        if sequence.is_verifying or sequence.room <= 0 or budget <= 0:
            return
        proposed: list[int] = []
        if drafts is not None and sequence.wants_drafts:
            if sequence.in_flight:
                if drafts.extends_past_flight(sequence):
                    return
            else:
                depth = min(self._draft_depth, sequence.room - 1, budget - 1, self._max_sequence_tokens - sequence.known - 1)
                proposed = drafts.take(sequence, depth) if depth > 0 else []
        up_to = sequence.planned + 1 + len(proposed)
        if sequence.pages_short(up_to) <= 0 or self._take_pages(draft, sequence, up_to):
            self._add_row(draft, sequence, 1 + len(proposed), proposed)

    def _plan_prefill(self, draft: Draft, sequence: Sequence) -> None:
        budget = self._capacity.max_step_tokens - draft.n_tokens
        if sequence.room > 0 and budget > 0:
            self._add_row(draft, sequence, min(sequence.behind, budget), [])

    def _admit(self, draft: Draft, may_run: Callable[[Sequence], bool]) -> None:
        for sequence in list(self._roster.waiting):
            if not self._roster.has_slot or draft.n_tokens >= self._capacity.max_step_tokens:
                return
            if not may_run(sequence):
                continue
            shared = self._shared_pages(sequence)
            if shared is None:
                continue
            needed = sequence.pages_short(sequence.known) - len(shared)
            reserve = len(self._roster.running)  # a page for each running sequence, so that admission does not cause preemption
            self._ledger.acquire(shared)
            if needed + reserve > self._ledger.n_available and (self._roster.running or needed > self._ledger.n_available):
                self._ledger.release(shared)
                return
            self._enter(draft, sequence, shared)

    def _enter(self, draft: Draft, sequence: Sequence, shared: list[int]) -> None:
        self._ledger.count_hits(shared)
        sequence.pages = list(shared)
        sequence.planned = len(shared) * PAGE_TOKENS
        draft.n_cached += sequence.planned
        if sequence.life == 0:
            sequence.n_cached = sequence.planned
        sequence.n_sealed = len(shared)
        self._roster.admit(sequence)
        draft.entered.append(sequence)
        draft.page_slots += [sequence.slot] * len(shared)
        draft.page_indices += range(len(shared))
        draft.page_ids += shared
        taken = self._take_pages(draft, sequence, sequence.known)
        assert taken, "admission counted the pages"
        self._plan_prefill(draft, sequence)

    def _shared_pages(self, sequence: Sequence) -> list[int] | None:
        """Pages of the longest known prefix that the ledger holds; None when one more step makes it longer.

        At least one token is left to compute: its logits are needed.
        """
        shared: list[int] = []
        if not self._prefix_reuse:
            return shared
        for index in range((sequence.known - 1) // PAGE_TOKENS):
            content = sequence.page_content(index)
            page = self._ledger.find(*content)
            if page is None:
                return None if self._ledger.is_fresh(content[0]) else shared
            shared.append(page)
        return shared

    # -- pages, rows, lease, message -----------------------------------------------------------------------------------

    def _take_pages(self, draft: Draft, sequence: Sequence, up_to: int) -> bool:
        """Give a sequence pages for positions [0, up_to), preempting younger ones; False when it had to go itself."""
        for _ in range(sequence.pages_short(up_to)):
            page = self._ledger.allocate()
            while page is None:
                victim = self._victims.choose(self._roster.running, draft.has_row) or sequence
                self._ledger.release(self._roster.preempt(victim))
                draft.n_preempted += 1
                if victim is sequence:
                    return False
                page = self._ledger.allocate()
            draft.page_slots.append(sequence.slot)
            draft.page_indices.append(len(sequence.pages))
            draft.page_ids.append(page)
            sequence.pages.append(page)
        return True

    def _add_row(self, draft: Draft, sequence: Sequence, count: int, proposed: list[int]) -> None:
        samples = bool(proposed) or count == sequence.behind
        draft.rows.append(Row(sequence, sequence.life, sequence.slot, sequence.planned, count, samples, proposed))
        draft.n_tokens += count
        if proposed:
            sequence.is_verifying = True  # how far it gets is known with the result
            return
        sequence.planned += count
        sequence.in_flight += samples
        if sequence.planned >= (sequence.n_sealed + 1) * PAGE_TOKENS:  # asked here, because most rows complete no page
            self.seal_known(sequence, is_in_the_making=True)

    def _lease(self, draft: Draft, most_steps: int) -> int:
        """How many steps this plan grants: more than one only when nothing else could happen meanwhile."""
        if most_steps == 1 or self._roster.waiting or draft.entered:
            return 1
        if any(row.count != 1 or not row.samples for row in draft.rows) or len(draft.rows) != len(self._roster.running):
            return 1
        n_steps = 1 + min(most_steps - 1, *(row.sequence.room for row in draft.rows))
        short = sum(row.sequence.pages_short(row.start + n_steps) for row in draft.rows)
        if n_steps == 1 or short > self._ledger.n_available:
            return 1
        for row in draft.rows:
            self._take_pages(draft, row.sequence, row.start + n_steps)
            row.sequence.planned += n_steps - 1
            row.sequence.in_flight += n_steps - 1
        return n_steps

    def _message(self, draft: Draft, epoch: int, step: int, n_steps: int) -> Plan:
        rows, entered = draft.rows, [s for s in draft.entered if s.state is State.RUNNING]
        drafts = [token for row in rows for token in row.drafts]
        return Plan(
            epoch=epoch,
            step=step,
            n_steps=n_steps,
            new=[NewSequence(slot=s.slot, n_tokens=s.known, n_prompt=s.n_prompt, sampling=s.sampling) for s in entered],
            new_tokens=np.concatenate([s.tokens() for s in entered]) if entered else EMPTY_I32,
            page_slots=int32s(draft.page_slots),
            page_indices=int32s(draft.page_indices),
            page_ids=int32s(draft.page_ids),
            row_slots=int32s([row.slot for row in rows]),
            row_starts=int32s([row.start for row in rows]),
            row_counts=int32s([row.count for row in rows]),
            row_samples=int32s([row.samples for row in rows]),
            draft_counts=int32s([len(row.drafts) for row in rows]) if drafts else EMPTY_I32,
            draft_ids=int32s(drafts),
        )
