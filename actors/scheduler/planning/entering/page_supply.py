"""Pages for the sequences of a plan. When none is available, others give theirs back and wait. Pure."""

from __future__ import annotations

from actors.pages.page_ledger import PageLedger
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence


class PageSupply:
    """The pages of one ledger. The policy of the queues chooses the sequence to preempt when pages run short."""

    def __init__(self, queues: SequenceQueues, ledger: PageLedger) -> None:
        self._queues, self._ledger = queues, ledger

    def take(self, builder: PlanBuilder, sequence: Sequence, up_to: int) -> bool:
        """Allocate pages for positions [0, up_to) of a sequence, preempting others. False if it was preempted itself."""
        first_index = len(sequence.pages)
        for _ in range(sequence.pages_short(up_to)):
            page = self._ledger.allocate()
            while page is None:
                victim = self._queues.policy.victims.choose(self._queues.running, builder.has_row) or sequence
                self._ledger.release(self._queues.preempt(victim))
                builder.n_preempted += 1
                if victim is sequence:
                    return False
                page = self._ledger.allocate()
            sequence.pages.append(page)
        builder.add_pages(sequence.slot, first_index, sequence.pages[first_index:])
        return True
