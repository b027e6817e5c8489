"""How many pages the running sequences of a caller may hold, where its terms give it only a part of them. Pure.

A page that sequences share counts once: for the one that has computed it. What a caller's sequences hold is counted when a plan
asks for it the first time; callers that may hold all pages are never counted.
"""

from __future__ import annotations

from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence


class PageBudgets:
    """The budgets of one gang with `n_pages` pages."""

    def __init__(self, queues: SequenceQueues, n_pages: int) -> None:
        self._queues, self._n_pages = queues, n_pages
        self._held: dict[bytes, int] = {}  # by caller, as far as this plan has asked
        self._exhausted: set[bytes] = set()  # callers of whom a sequence has found no room in this plan

    def begin(self) -> None:
        """A plan is about to be made."""
        if self._held:
            self._held, self._exhausted = {}, set()

    def has_room(self, sequence: Sequence, n_pages: int) -> bool:
        """True if the caller of a waiting sequence may hold so many more pages, and one more for each of its running
        sequences."""
        if sequence.terms.page_share >= 1.0:
            return True
        running = self._of_caller(sequence)
        if self._held_by(sequence) + n_pages + len(running) <= self._most(sequence) or not running:
            return True
        self._exhausted.add(sequence.terms.caller)
        return False

    def is_exhausted(self, sequence: Sequence) -> bool:
        """True if another sequence of the same caller has found no room in this plan."""
        return sequence.terms.caller in self._exhausted

    def room(self, sequence: Sequence) -> int:
        """How many more pages the caller of a running sequence may hold. A sequence that runs alone may have what it needs: it
        was fitted to the budget when it came."""
        if sequence.terms.page_share >= 1.0 or len(self._of_caller(sequence)) < 2:
            return self._n_pages
        return self._most(sequence) - self._held_by(sequence)

    def count(self, sequence: Sequence, n_pages: int) -> None:
        """A running sequence has got so many pages that it does not share; fewer than 0: it has given them back."""
        if sequence.terms.caller in self._held:
            self._held[sequence.terms.caller] += n_pages

    def rivals(self, sequence: Sequence) -> list[Sequence]:
        """The running sequences of the same caller, this one included, in their order."""
        return self._of_caller(sequence)

    def _most(self, sequence: Sequence) -> int:
        return budget_pages(self._n_pages, sequence.terms.page_share)

    def _of_caller(self, sequence: Sequence) -> list[Sequence]:
        caller = sequence.terms.caller
        return [one for one in self._queues.running if one.terms.caller == caller]

    def _held_by(self, sequence: Sequence) -> int:
        caller = sequence.terms.caller
        if caller not in self._held:
            self._held[caller] = sum(len(one.pages) - one.n_shared for one in self._of_caller(sequence))
        return self._held[caller]


def budget_pages(n_pages: int, share: float) -> int:
    """The pages that a share of all `n_pages` is; at least 1."""
    return max(int(n_pages * share), 1)
