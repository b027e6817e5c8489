"""A page ledger that uses as many of its pages as the load needs; the memory of the others is with the system.

    | state    | holders | content known | listed in   |
    |----------|---------|---------------|-------------|
    | returned | 0       | no            | `_returned` |      beside the states in `page_ledger.py`

free -> returned (`give_back`) -> free (inside allocate). A returned page can be allocated at any time: the system gives memory
when it is first touched, so growing needs no message and no time. Therefore admission counts returned pages as available, and
no sequence waits, or is preempted, because the ledger is small.

The ledger grows by one page when sequences hold all pages in use, and by one for each page that was evicted and is computed
again (`eviction/ghosts.py`): a larger cache would have had it. It shrinks to what `WorkingSet` says, a part at a time. As soon
as it grows it shrinks no further before the end of the next window.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from actors.pages.eviction.ghosts import Ghosts
from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.ledger_statistics import LedgerStatistics
from actors.pages.seal_table import SealTable
from actors.pages.sizing.working_set import SizingRule, WorkingSet

_FEWEST_TOGETHER, _PARTS = 64, 64  # pages that are given back at once: ranks must not stop for long


class SizedLedger(ForgettingLedger):
    """`now_s`: the monotonic clock. All pages are in use until `begin`."""

    def __init__(
        self,
        n_pages: int,
        eviction: EvictionPolicy,
        seals: SealTable | None,
        rule: SizingRule,
        now_s: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        super().__init__(n_pages, eviction, seals, now_s)
        self._needs, self._lost = WorkingSet(rule, now_s), Ghosts(n_pages)
        self._n_regretted = 0  # hits of `_lost` that have been answered by a page, or are too old
        self._returned: list[int] = []  # the first to be used again at the end
        self._n_least = self._n_wanted = n_pages  # `give_back` works towards `_n_wanted`
        self._most_together = max(n_pages // _PARTS, _FEWEST_TOGETHER)

    @property
    def n_in_use(self) -> int:
        """Pages that are not returned."""
        return self.n_pages - len(self._returned)

    @property
    def returned(self) -> list[int]:
        """All returned pages. Told again to ranks that begin: those before may have died before they heard of it."""
        return list(self._returned)

    @property
    def _n_free(self) -> int:
        return super()._n_free + len(self._returned)

    @property
    def _n_held(self) -> int:
        return self.n_pages - self.n_available

    def begin(self, n_least: int, is_new: bool) -> None:
        """An epoch begins. n_least: pages in use at the least; 0: all, always. A new ledger begins with these and those whose
        content it has adopted."""
        self._n_least = min(n_least or self.n_pages, self.n_pages)
        while is_new and self._free and self.n_in_use > self._n_least:
            self._returned.append(self._free.pop())

    def give_back(self, is_read: Callable[[int], bool]) -> list[int]:
        """Pages whose memory the ranks shall give back now; [] if there are none. To be called about once a second, and not
        while a plan is being made. May evict cached pages.

        is_read: True for a free page whose old content is still to be copied: it stays until a later call."""
        size = self._needs.size(self._n_held)
        if size is not None:
            self._n_wanted, self._n_regretted = size, self._lost.hits
        n_pages = min(self.n_in_use - max(self._n_wanted, self._n_least), self._most_together)
        while len(self._free) < n_pages and self._cached:
            self._free.append(self._evict()[0])
        pages, kept = [], []
        while self._free and len(pages) < n_pages:
            page = self._free.pop()
            (kept if is_read(page) else pages).append(page)
        self._free.extend(kept)
        self._returned += pages
        return pages

    def allocate(self) -> int | None:
        if not self._free and self._returned and (not self._cached or self._lost.hits > self._n_regretted):
            self._free.append(self._returned.pop())
            self._n_regretted += self._lost.hits > self._n_regretted
            self._n_wanted = self.n_pages
        return super().allocate()

    def allocate_all(self, n_pages: int) -> list[int]:
        return [page for page in (self.allocate() for _ in range(n_pages)) if page is not None]

    def count_hits(self, pages: list[int]) -> None:
        super().count_hits(pages)
        self._needs.reused(pages)

    def seal(
        self, page: int, content_hash: int, parent: int, tokens: bytes, is_planned: bool, before: int | None = None
    ) -> None:
        super().seal(page, content_hash, parent, tokens, is_planned, before)
        self._lost.computed(content_hash)

    def commit_plan(self) -> None:
        super().commit_plan()
        self._needs.held(self._n_held)

    def statistics(self) -> LedgerStatistics:
        """Pages by state; returned ones are not free."""
        figures = super().statistics()
        return replace(figures, free=figures.free - len(self._returned), returned=len(self._returned))

    def _evict(self) -> tuple[int, int]:
        page, content_hash = super()._evict()
        if content_hash not in self._page_of:
            self._lost.evicted(content_hash)
        return page, content_hash
