"""Moves waiting sequences into slots, with what the ledger has of their first tokens and pages for the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.entering.overtaking import Overtaking
from actors.scheduler.planning.entering.page_budgets import PageBudgets
from actors.scheduler.planning.entering.page_supply import PageSupply
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.planning.prefix_search import KnownPrefix, PrefixSearch
from actors.scheduler.planning.prompt_pace import PromptPace
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS

_MOST_TRIED = 8  # sequences that find no pages in a plan; then no more are tried


class SlotEntry:
    """The way from the waiting queue into the slots of one gang."""

    def __init__(
        self,
        queues: SequenceQueues,
        ledger: ForgettingLedger,
        prefixes: PrefixSearch,
        pace: PromptPace,
        supply: PageSupply,
        budgets: PageBudgets,
        most_passed: int,
    ) -> None:
        """most_passed: sequences that may enter before one that comes first and waits for pages."""
        self._queues, self._ledger, self._prefixes, self._pace = queues, ledger, prefixes, pace
        self._supply, self._budgets, self._overtaking = supply, budgets, Overtaking(queues, most_passed)

    def begin(self, may_run: Callable[[Sequence], bool]) -> None:
        """A plan begins. may_run: True for a sequence that may be a part of it."""
        self._budgets.begin()
        self._overtaking.begin(may_run)

    def enter(self, builder: PlanBuilder, sequence: Sequence) -> bool:
        """Move a waiting sequence into a slot, with pages for all its tokens. False if it has to wait."""
        if self.is_closed(builder):
            return False
        if self._budgets.is_exhausted(sequence) or not self._overtaking.may_enter(sequence):
            return False
        found = self._prefixes.find(sequence, builder.leaders)
        if found is None:
            builder.n_followers += 1
            return False
        needed = sequence.pages_short(sequence.known) - len(found.pages)
        if not self._budgets.has_room(sequence, needed):
            builder.n_held_up += 1
            return False
        self._ledger.acquire(found.pages)
        if not self._has_room(needed):
            self._ledger.release(found.pages)
            builder.n_held_up += 1
            builder.is_full = not self._overtaking.finds_no_pages(sequence) or builder.n_held_up >= _MOST_TRIED
            return False
        self._start(builder, sequence, found, needed)
        self._overtaking.entered(sequence)
        return True

    def is_closed(self, builder: PlanBuilder) -> bool:
        """True if nobody else can enter with this plan."""
        return builder.is_full or bool(builder.n_preempted) or builder.n_followers >= self._queues.n_free_slots

    def _has_room(self, needed: int) -> bool:
        """True if so many pages are available, and one more for each running sequence, so that admission causes no
        preemption."""
        reserve = len(self._queues.running)
        return needed + reserve <= self._ledger.n_available or not (reserve or needed > self._ledger.n_available)

    def _start(self, builder: PlanBuilder, sequence: Sequence, found: KnownPrefix, needed: int) -> None:
        shared = found.pages
        sequence.pages = list(shared)
        n_open = self._prefixes.take_open(sequence, found)
        tail = self._prefixes.hold_tail(found) if not n_open and needed < self._ledger.n_available else None
        sequence.planned = len(shared) * PAGE_TOKENS + (n_open if tail is None else tail[1])
        if sequence.stay == sequence.cached_stay:
            sequence.n_cached = sequence.planned
            builder.n_cached += min(sequence.planned, sequence.n_prompt)
            builder.saved_s += self._pace.prompt_s(sequence.planned)
        sequence.n_sealed = sequence.n_shared = len(shared)
        self._queues.start(sequence)
        self._prefixes.entered(sequence, found)
        builder.entered.append(sequence)
        builder.add_pages(sequence.slot, 0, sequence.pages)
        self._budgets.count(sequence, len(sequence.pages) - len(shared))
        taken = self._supply.take(builder, sequence, sequence.known)
        assert taken, "admission counted the pages"
        if tail is not None:
            self._prefixes.add_copy(builder, sequence, tail)
