"""Decides what the next step computes, from the queues, the page ledger, the token budget and the drafts. Pure.

Tokens are scheduled, not phases (the idea of vLLM's scheduler): first one token for each decoding sequence, then chunks of
prompts, as many as `PromptPace` allows: of the prompt that is first in the order of the queues, then of the others, the
shortest first. Each becomes the first one in the end, so none waits for ever. A prompt that waits enters a slot with its first
chunk. If a decoding sequence finds no page, a victim is preempted: it loses its pages, waits, and is computed again. A waiting
sequence that finds no pages lets some smaller ones pass, up to a bound. The policy of the queues says who comes first and who
gives way; folder `entering` has the way into the slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import takewhile

import msgspec

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.decoding.decode_planner import DecodePlanner
from actors.scheduler.planning.decoding.page_seals import PageSeals
from actors.scheduler.planning.drafts import ReceivedDrafts
from actors.scheduler.planning.entering.cohorts import Cohorts
from actors.scheduler.planning.entering.displacement import Displacement
from actors.scheduler.planning.entering.entry import SlotEntry
from actors.scheduler.planning.entering.hurrying import Hurrying
from actors.scheduler.planning.entering.lease import grant_steps
from actors.scheduler.planning.entering.page_budgets import PageBudgets
from actors.scheduler.planning.entering.page_supply import PageSupply
from actors.scheduler.planning.entering.turns import StepTurns, Turn
from actors.scheduler.planning.host_tier import HostTier
from actors.scheduler.planning.plan_builder import PlanBuilder, PlannedStep
from actors.scheduler.planning.prefix_search import PrefixSearch
from actors.scheduler.planning.prompt_pace import PromptPace
from actors.scheduler.planning.rows.row import NO_DRAFTS, ForcedTokens, Row
from actors.scheduler.planning.step_times import StepTimes
from actors.scheduler.sequences.permission import MayRun
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence, State
from actors.scheduler.settings import SchedulerSettings
from messages.steps import PAGE_TOKENS, EngineCapacity

_MOST_FORCED = 15  # with the token before them: as many as share one call of the attention with other rows
_MOST_COMPARED = 64  # waiting sequences among which the shortest is looked for
Drafts = ReceivedDrafts | None  # None when drafts cost more than they give


class BatchPlanner:
    """Plans the steps of one gang. The policy of the queues decides who comes first. `times`: of the steps that have ended."""

    def __init__(
        self,
        queues: SequenceQueues,
        ledger: ForgettingLedger,
        capacity: EngineCapacity,
        pace: PromptPace,
        settings: SchedulerSettings,
        times: StepTimes,
        tier: HostTier,
    ) -> None:
        self._queues, self._ledger, self._capacity = queues, ledger, capacity
        self._pace, self._times = pace, times
        self._max_sequence_tokens = capacity.max_sequence_tokens
        self._draft_depth = settings.draft_depth
        self._prefixes = PrefixSearch(ledger, settings.prefix_reuse, capacity.copies_pages, tier)
        self._budgets = PageBudgets(queues, capacity.n_pages)
        self._supply = PageSupply(queues, ledger, self._budgets)
        self._entry = SlotEntry(
            queues, ledger, self._prefixes, pace, self._supply, self._budgets, most_passed=settings.most_passed
        )
        seals = PageSeals(ledger, tier, is_on=settings.prefix_reuse)
        self.seal_known = seals.seal_known
        self._together = DecodePlanner(capacity, queues, ledger, self._supply, seals)
        self._displacement = Displacement(queues, ledger, lambda sequence: seals.seal_known(sequence, is_planned=False))
        queues.policy.measured_by(pace)
        self._cohorts = Cohorts(settings.pp)
        self._hurrying, self._turns = Hurrying(queues, self._entry), StepTurns(queues.policy, pace, settings.urgent_step_s)
        self._is_takeover = bool(queues.running)  # they stayed in their slots when the last gang died; this one must enter them

    def plan(self, epoch: int, step: int, may_run: MayRun, drafts: Drafts = None, most_steps: int = 1) -> PlannedStep | None:
        """The next step, or None when nothing can be computed now. The ledger and the sequences count it as sent.

        Args:
            epoch, step: of the plan.
            may_run: True for a sequence that may be planned; False for one whose gateway has no credit.
            most_steps: the most steps that the plan may grant.
        """
        if self._awaits_forced():
            return None
        builder = PlanBuilder(self._times, entered=list(self._queues.running) if self._is_takeover else [])
        drafts = None if self._is_takeover else drafts
        self._entry.begin(may_run)
        if self._queues.policy.displaces and len(self._queues.waiting) and not self._is_takeover:
            self._displacement.make_room(builder, may_run)
        self._plan_rows(builder, may_run, drafts)
        if not builder.n_rows and not self._plan_entered(builder):
            return None
        if self._is_takeover:
            builder.restate_pages()
            self._is_takeover = False
        self._cohorts.planned(builder)
        n_steps = grant_steps(builder, most_steps, self._queues, self._ledger, self._supply)
        self._together.granted(n_steps)
        self._ledger.commit_plan()
        if self._queues.policy.counts:
            self._queues.policy.planned(builder.sequences, builder.counts, n_steps - 1)
        return builder.finish(epoch, step, n_steps)

    def _plan_rows(self, builder: PlanBuilder, may_run: MayRun, drafts: Drafts) -> None:
        """Rows of the sequences that decode, then those of prompts."""
        running = self._queues.running  # here as in `_plan_decoding`: the properties, without a call for each row
        decoding = self._together.unchanged or [s for s in running if s.known + s.in_flight - s.planned == 1]
        prompts = [s for s in running if s.n_unplanned > 1] if len(decoding) < len(running) else []
        has_prompts = bool(prompts) or len(self._queues.waiting) > 0
        decoding = self._cohorts.choose(decoding, has_prompts, may_run)
        hurried = self._hurrying.first_of(builder, prompts, may_run) if has_prompts else None
        kept, n_prompts = self._hurrying.kept_going(decoding, hurried), len(prompts) + self._n_entering(builder)
        turn = self._turns.next(kept, n_prompts) if hurried is None else Turn(kept)
        self._plan_decoding(builder, turn.decoding, may_run, drafts)
        if has_prompts and turn.takes_prompts:
            self._plan_prompts(builder, [s for s in prompts if s.state is State.RUNNING], may_run, hurried, turn)
            if turn.is_of_prompts and not builder.n_rows:  # none has found pages or credit
                self._plan_decoding(builder, kept, may_run, drafts)
        elif not has_prompts:
            self._pace.rest()

    def _plan_decoding(self, builder: PlanBuilder, decoding: list[Sequence], may_run: MayRun, drafts: Drafts) -> None:
        """A row for each of these sequences, all together or one by one. Rows of one token without drafts are made here, with
        as few calls as possible."""
        if not self._is_takeover and self._together.plan(builder, decoding, may_run, drafts is not None):
            return
        running, most_tokens, n_tokens = State.RUNNING, self._capacity.max_step_tokens, builder.n_tokens  # written back below
        add, take = builder.rows.append, self._supply.take
        for s in decoding:
            if s.state is not running or not may_run(s):
                continue
            start = s.planned
            if drafts is not None or s.forced is not None or s.is_verifying:
                builder.n_tokens = n_tokens
                self._plan_decode(builder, s, drafts)
                n_tokens = builder.n_tokens
            elif s.known + s.in_flight - s.n_prompt < s.max_tokens and n_tokens < most_tokens:
                if start >= len(s.pages) * PAGE_TOKENS and not take(builder, s, start + 1):
                    continue
                add(Row(s, s.stay, s.slot, start, 1, True, NO_DRAFTS))
                n_tokens += 1
                s.planned = start = start + 1
                s.in_flight += 1
                if s.known >= (page_end := (s.n_sealed + 1) * PAGE_TOKENS) and start >= page_end:
                    self.seal_known(s, is_planned=True)
        builder.n_tokens = n_tokens

    def _n_entering(self, builder: PlanBuilder) -> int:
        """Waiting sequences that could have slots in this plan."""
        return 0 if builder.n_preempted else min(len(self._queues.waiting), self._queues.n_free_slots)

    def _awaits_forced(self) -> bool:
        """True if a result is due and the grammar of every running sequence has forced tokens before. The result most likely
        brings more forced tokens, and a step that is planned ahead of it would compute only one."""
        running = self._queues.running
        return all(s.was_forced for s in running) and any(s.in_flight or s.is_verifying for s in running)

    # -- the three kinds of rows -------------------------------------------------------------------------------------

    def _plan_decode(self, builder: PlanBuilder, sequence: Sequence, drafts: Drafts) -> None:
        budget = self._capacity.max_step_tokens - builder.n_tokens
        if sequence.is_verifying or sequence.n_samples_left <= 0 or budget <= 0:
            return
        proposed: list[int] = []
        if sequence.forced is not None or (drafts is not None and sequence.terms.speculation):
            if sequence.in_flight:
                if sequence.n_forced > 0 or (drafts is not None and drafts.extends_past_flight(sequence)):
                    return
            else:
                room = min(sequence.n_samples_left - 1, budget - 1, self._max_sequence_tokens - sequence.known - 1)
                proposed = self._propose(sequence, drafts, room) if room > 0 else []
        up_to = sequence.planned + 1 + len(proposed)
        if sequence.pages_short(up_to) <= 0 or self._supply.take(builder, sequence, up_to):
            self._add_row(builder, sequence, 1 + len(proposed), proposed)

    def _propose(self, sequence: Sequence, drafts: Drafts, room: int) -> list[int]:
        """At most `room` tokens to verify: those that a grammar allows alone, which cost nothing, else those of speculation."""
        if sequence.forced is not None:
            return ForcedTokens(sequence.take_forced(min(_MOST_FORCED, room)))
        if drafts is None or sequence.grammar_state.is_slow:
            return []
        return drafts.pop(sequence, min(self._draft_depth, room))

    def _plan_prompts(
        self, builder: PlanBuilder, prompts: list[Sequence], may_run: MayRun, hurried: Sequence | None, turn: Turn
    ) -> None:
        """Rows of running prompts, and of waiting ones that enter. prompts: the running ones, in order. hurried: one of them
        that keeps others waiting."""
        prompts = [s for s in prompts if s.n_samples_left > 0 and may_run(s)]
        n_free = 0 if builder.n_preempted else self._queues.n_free_slots
        waiting = self._queues.waiting
        n_prompts = len(prompts) + min(len(waiting), n_free)
        if not n_prompts:
            return
        n_compared = min(n_free, _MOST_COMPARED)
        first_ones = waiting.first(n_compared)
        nearest = [s for s in first_ones if may_run(s)]
        later = waiting.without(first_ones) if n_free else iter(())
        # sequences that wait for the result of their drafts decode too, though they have no row
        n_decode = builder.n_rows or sum(s.is_verifying or s.in_flight > 0 for s in self._queues.running)
        n_decode = 0 if turn.is_of_prompts else n_decode
        if hurried is not None:
            is_urgent = self._queues.policy.is_urgent
            n_decode = sum(not is_urgent(hurried, one) for one in builder.sequences)
            equals = [s for s in (*prompts, *nearest) if not is_urgent(hurried, s)]
            prompts = [s for s in equals if s.state is State.RUNNING]
            nearest, later, n_prompts = [s for s in equals if s.state is State.WAITING], iter(()), len(equals)
        longest_s = self._turns.longest_s(turn, n_decode, n_prompts, self._queues.running) if hurried is None else math.inf
        self._pace.begin(n_decode, self._capacity.max_step_tokens - builder.n_tokens, n_prompts, longest_s)
        first = self._first_prompt(builder, prompts, nearest) if self._pace.has_first else None
        place = len(builder.rows)
        has_row = first is not None and self._add_chunk(builder, first, self._pace.first)
        others = [s for s in (*prompts, *nearest) if s is not first]
        if self._pace.has_others and len(others) > 1:
            others.sort(key=self._queues.policy.short_key)
        self._plan_others(builder, others)
        if not self._entry.is_closed(builder):
            self._plan_others(builder, takewhile(lambda _: not self._entry.is_closed(builder), filter(may_run, later)))
        if has_row and not builder.rows[place].samples and self._pace.has_others:
            self._lengthen_chunk(builder, place)
        self._pace.end()

    def _plan_others(self, builder: PlanBuilder, sequences: Iterable[Sequence]) -> None:
        """Chunks of prompts after the first one, as far as the pace has time for them."""
        for sequence in sequences:
            if not self._pace.has_others:
                return
            if sequence.state is State.RUNNING or self._entry.enter(builder, sequence):
                self._add_chunk(builder, sequence, self._pace.other)

    def _plan_entered(self, builder: PlanBuilder) -> bool:
        """A few tokens of a hurried prompt that the pace has no time for: ranks must hear of what has entered a slot. False if
        nothing has."""
        entered = next((s for s in builder.entered if s.state is State.RUNNING), None)
        if entered is None or self._is_takeover:
            return False
        most = min(PAGE_TOKENS, self._capacity.max_step_tokens)
        return self._add_chunk(builder, entered, lambda start, wanted: min(wanted, most))

    def _first_prompt(self, builder: PlanBuilder, prompts: list[Sequence], waiting: list[Sequence]) -> Sequence | None:
        """The prompt that is first in order, in its slot; the first running one if the waiting one before it cannot enter."""
        key = self._queues.policy.key
        running = min(prompts, key=key, default=None)
        if waiting and (running is None or key(waiting[0]) < key(running)) and self._entry.enter(builder, waiting[0]):
            return waiting[0]
        return running

    def _add_chunk(self, builder: PlanBuilder, sequence: Sequence, allowed: Callable[[int, int], int]) -> bool:
        """Plan as much of a prompt as is `allowed`. False if it finds no pages and was preempted."""
        start = sequence.planned
        n_tokens = allowed(start, sequence.n_unplanned)
        up_to = start + n_tokens  # admission took these pages, but the loss of a gang may have taken them back
        if sequence.pages_short(up_to) > 0 and not self._supply.take(builder, sequence, up_to):
            return False
        builder.count_prompt(start, n_tokens)
        self._add_row(builder, sequence, n_tokens, [], builder.n_copied_for(sequence))
        self._prefixes.chunk_planned(builder.leaders, sequence, start)
        return True

    def _lengthen_chunk(self, builder: PlanBuilder, place: int) -> None:
        """Give the row at `place`, which is the first prompt's, the tokens that the other prompts have left."""
        row = builder.rows[place]
        if row.sequence.pages_short(row.sequence.known) > 0:
            return
        n_tokens = self._pace.other(row.sequence.planned, row.sequence.n_unplanned)
        builder.count_prompt(row.sequence.planned, n_tokens, n_rows=0)
        builder.n_tokens += n_tokens
        builder.rows[place] = msgspec.structs.replace(
            row, count=row.count + n_tokens, samples=n_tokens == row.sequence.n_unplanned
        )
        self._advance(row.sequence, n_tokens, builder.rows[place].samples)
        self._prefixes.chunk_planned(builder.leaders, row.sequence, row.start)

    # -- rows ------------------------------------------------------------------------------------------

    def _add_row(self, builder: PlanBuilder, sequence: Sequence, count: int, proposed: list[int], n_copied: int = 0) -> None:
        samples = bool(proposed) or count == sequence.n_unplanned
        builder.rows.append(Row(sequence, sequence.stay, sequence.slot, sequence.planned, count, samples, proposed, n_copied))
        builder.n_tokens += count
        if proposed:
            sequence.is_verifying = True  # the result says how many of these positions are valid
            return
        self._advance(sequence, count, samples)

    def _advance(self, sequence: Sequence, count: int, samples: bool) -> None:
        sequence.planned += count
        sequence.in_flight += samples
        if sequence.planned >= (sequence.n_sealed + 1) * PAGE_TOKENS:  # tested here, because most rows complete no page
            self.seal_known(sequence, is_planned=True)
