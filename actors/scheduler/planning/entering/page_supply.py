"""Pages for the sequences of a plan. When none is available, others give theirs back and wait. Pure."""

from __future__ import annotations

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.entering.page_budgets import PageBudgets
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence


class PageSupply:
    """The pages of one ledger. The policy of the queues chooses the sequence to preempt when pages run short. When the budget
    of a caller does, it is one of its own."""

    def __init__(self, queues: SequenceQueues, ledger: ForgettingLedger, budgets: PageBudgets) -> None:
        self._queues, self._ledger, self._budgets = queues, ledger, budgets

    def take(self, builder: PlanBuilder, sequence: Sequence, up_to: int) -> bool:
        """Allocate pages for positions [0, up_to) of a sequence, preempting others. False if it was preempted itself."""
        allocate, first_index, short = self._ledger.allocate, len(sequence.pages), sequence.pages_short(up_to)
        if sequence.terms.page_share < 1.0 and not self._keeps_budget(builder, sequence, short):
            return False
        n_at_once = min(short, self._ledger.n_available) if short > 1 else 0  # many together take less time than one by one
        if n_at_once:
            sequence.pages += self._ledger.allocate_all(n_at_once)
        for _ in range(first_index + short - len(sequence.pages)):
            while (page := allocate()) is None:
                victim = self._queues.policy.victims.choose(self._queues.running, builder.has_row) or sequence
                self._preempt(builder, victim)
                if victim is sequence:
                    return False
            sequence.pages.append(page)
        self._budgets.count(sequence, short)
        builder.add_pages(sequence.slot, first_index, sequence.pages[first_index:])
        return True

    def _keeps_budget(self, builder: PlanBuilder, sequence: Sequence, n_pages: int) -> bool:
        """Preempt sequences of the same caller until it may hold so many more pages. False if this one was preempted."""
        while self._budgets.room(sequence) < n_pages:
            rivals = [one for one in self._budgets.rivals(sequence) if not builder.has_row(one)]
            victim = rivals[-1] if rivals else sequence
            self._preempt(builder, victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, builder: PlanBuilder, victim: Sequence) -> None:
        self._budgets.count(victim, victim.n_shared - len(victim.pages))
        self._ledger.release(self._queues.preempt(victim))
        builder.n_preempted += 1
