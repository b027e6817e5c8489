"""Running sequences that give their slots and pages to waiting ones which the policy puts before them. Pure.

A displaced sequence waits at its place in the order. Its full pages stay cached, so it goes on with few tokens computed again,
unless others have needed the pages. It gives way only after it has got on in its slot. After some times it must get on further:
what is computed again stays a small part, and nobody waits for the end of a long answer because all have given way often.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS

_MOST_TIMES = 8  # that one sequence is displaced so soon
_LEAST_TOKENS = PAGE_TOKENS  # that a decoding sequence has generated in its slot before it is displaced
_LATER_TOKENS = 8 * PAGE_TOKENS  # the same, after so many times
_LATER_PART = 16  # and one part in so many of its length: that much may have to be computed again
_MOST_A_PLAN = 8


class Displacement:
    """Makes room for waiting sequences. `seal` tells the ledger what the pages of a sequence hold."""

    def __init__(self, queues: SequenceQueues, ledger: ForgettingLedger, seal: Callable[[Sequence], None]) -> None:
        self._queues, self._ledger, self._seal = queues, ledger, seal

    def make_room(self, builder: PlanBuilder, may_run: Callable[[Sequence], bool]) -> None:
        """Displace running sequences until the first waiting ones have slots, and the very first one pages. To be called while
        the plan has no row and at least one sequence waits."""
        (first,) = self._queues.waiting.first(1)
        if not may_run(first) or not (self._queues.has_slot or self._displace(builder, first)):
            return
        self._free_pages(builder, first)
        if builder.n_displaced:
            self._free_slots(builder, may_run)

    def _free_slots(self, builder: PlanBuilder, may_run: Callable[[Sequence], bool]) -> None:
        """Displace for the next ones too: several may have come at once."""
        for index, waiting in enumerate(self._queues.waiting.first(_MOST_A_PLAN)):
            if not may_run(waiting) or (self._queues.n_free_slots <= index and not self._displace(builder, waiting)):
                return

    def _displace(self, builder: PlanBuilder, waiting: Sequence) -> bool:
        """Displace the sequence that gives way to this one. False if there is none."""
        victim = self._queues.policy.victim_for(waiting, self._queues.running, _may_give)
        if victim is None:
            return False
        self._preempt(builder, victim)
        return True

    def _free_pages(self, builder: PlanBuilder, waiting: Sequence) -> None:
        """Displace as many as it takes for the first waiting sequence to find pages; none if that is not enough."""
        victim_for, running = self._queues.policy.victim_for, self._queues.running
        if waiting.pages_short(waiting.known) + len(running) <= self._ledger.n_available:
            return
        if victim_for(waiting, running, _may_give) is None:  # nearly always; to look up the pages of a long prompt takes longer
            return
        short = self._n_needed(waiting) + len(running) - self._ledger.n_available
        if short <= 0:
            return
        victims: list[Sequence] = []
        while short > 0:
            victim = victim_for(waiting, running, lambda one: one not in victims and _may_give(one))
            if victim is None or len(victims) == _MOST_A_PLAN:
                return
            victims.append(victim)
            short -= len(victim.pages) - victim.n_shared + 1  # the page that was reserved for its next tokens, too
        for victim in victims:
            self._preempt(builder, victim)

    def _n_needed(self, waiting: Sequence) -> int:
        """Pages that it needs beside those that running sequences hold. Cached pages make no difference: they are available
        until it takes them."""
        n_pages = waiting.pages_short(waiting.known)
        for content in waiting.page_contents((waiting.known - 1) // PAGE_TOKENS):
            page = self._ledger.find(*content)
            if page is None:
                break
            n_pages -= self._ledger.is_held(page)
        return n_pages

    def _preempt(self, builder: PlanBuilder, victim: Sequence) -> None:
        self._seal(victim)
        self._ledger.release(self._queues.preempt(victim))
        victim.n_displaced += 1
        builder.n_displaced += 1


def _may_give(sequence: Sequence) -> bool:
    """True if a running sequence may be displaced."""
    n_generated = sequence.on_device - sequence.n_before_stay
    if sequence.n_displaced < _MOST_TIMES:
        return n_generated >= _LEAST_TOKENS or sequence.n_unplanned > 1
    return n_generated >= max(_LATER_TOKENS, sequence.known // _LATER_PART)
