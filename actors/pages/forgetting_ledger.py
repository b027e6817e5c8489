"""A page ledger that forgets contents on request, while sequences go on with the pages that they hold.

A held page whose content was forgotten stays until its last holder ends, and nobody else finds it. So do the pages after it in
the sequences that hold it: they continue what was forgotten, and a caller who had them forgotten must not find them again.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import replace

from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.eviction.shares import CacheShares, SharedEviction
from actors.pages.forgetting import Forgetting, KnownPage, RootScopes, pages_to_forget
from actors.pages.ledger_statistics import LedgerStatistics
from actors.pages.page_ledger import PageLedger
from actors.pages.seal_table import SealTable


class ForgettingLedger(PageLedger):
    """`now_s`: the monotonic clock, for the age of contents. Pages that were adopted are older than any age."""

    def __init__(
        self,
        n_pages: int,
        eviction: EvictionPolicy,
        seals: SealTable | None = None,
        now_s: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        super().__init__(n_pages, eviction, seals)
        self._now_s, self._since_s = now_s, array("d", [-math.inf]) * n_pages  # when the content was told
        self._made_s = now_s()
        self._forgotten: dict[int, int] = {}  # held page -> the plan that completes its content; -1: an applied one

    def statistics(self) -> LedgerStatistics:
        oldest = next(iter(self._page_of.values()), None)  # contents stay in the order in which they were told
        age_s = 0.0 if oldest is None else self._now_s() - max(self._since_s[oldest], self._made_s)
        return replace(super().statistics(), oldest_s=age_s)

    def is_held(self, page: int) -> bool:
        """True if a sequence holds this page."""
        return self._holders[page] > 0

    def is_applied(self, content_hash: int) -> bool:
        """True if the plan that completes this known content has been applied: it is in its page now."""
        return content_hash not in self._planned and not any(content_hash in hashes for hashes in self._unapplied)

    def evicted_next(self, n: int) -> list[tuple[int, int, bytes]]:
        """The contents that would be overwritten if `n` pages were allocated now, as far as the policy knows that."""
        pages = self._cached.evicted_next(max(n - self._n_free, 0))
        return [self._content_of(page) for page in pages]

    def cached_page(self, content: tuple[int, int, bytes]) -> int | None:
        """The page with this content if no sequence holds it; else None."""
        page = self._page_of.get(content[0])
        return page if page is not None and page in self._cached and self._content_of(page) == content else None

    def forget(self, wanted: Forgetting, roots: RootScopes) -> int:
        """Forget the contents that are wanted, and all partly filled pages that others could copy. Returns the number of pages.
        Must not be called while a plan is being made. Takes 1 to 4 µs for each known page."""
        self.tails.clear()
        while self._open:
            self._free.append(self._open.pop())
        pages = list(self._hash_of)
        if not wanted.is_everything:
            known = (KnownPage(page, *self._content_of(page), self._since_s[page]) for page in pages)
            pages = pages_to_forget(known, wanted, roots, self._now_s())
        for page in pages:
            self._forget(page)
        return len(pages)

    def seal(
        self, page: int, content_hash: int, parent: int, tokens: bytes, is_planned: bool, before: int | None = None
    ) -> None:
        """As `PageLedger.seal`. before: the page before it in its sequence; None: it is the first one."""
        if self._forgotten and (page in self._forgotten or before in self._forgotten):
            self._forgotten[page] = self._plan if is_planned else self._plan - 1
            return
        super().seal(page, content_hash, parent, tokens, is_planned)
        self._since_s[page] = self._now_s()

    def bound_caches(self, shares: CacheShares, roots: RootScopes) -> None:
        """From now on callers that have more cached pages than their part lose theirs first. Takes 5 to 8 µs for each known
        page the first time."""
        if isinstance(self._cached, SharedEviction):
            return
        self._cached = self._reader = SharedEviction(self._cached, self.n_pages, shares, roots.scope_of)
        self._cached.take_over((page, content_hash, self._content_of(page)[1]) for content_hash, page in self._page_of.items())

    def note_old(self, page: int) -> None:
        """The content of a page was computed before it came here, nobody knows when: it is older than any age."""
        self._since_s[page] = -math.inf

    def prefix_of(self, page: int) -> list[int]:
        """The pages from the beginning of a prompt to this known one, in order. Whoever holds it has to hold all of them."""
        found, before = list[int](), page
        while before is not None:
            found.append(before)
            before = self._page_of.get(self._content_of(before)[1])
        return found[::-1]

    def release(self, pages: list[int]) -> None:
        super().release(pages)
        if self._forgotten:
            for page in pages:
                if not self._holders[page]:
                    self._forgotten.pop(page, None)

    def drop_unapplied(self) -> set[int]:
        first = self._plan - len(self._unapplied)
        return super().drop_unapplied() | {page for page, plan in self._forgotten.items() if plan >= first}

    def _forget(self, page: int) -> None:
        content_hash, first = self._hash_of[page], self._plan - len(self._unapplied)
        if self._holders[page]:
            plans = (first + at for at, hashes in enumerate(self._unapplied) if content_hash in hashes)
            self._forgotten[page] = next(plans, -1)
        while (duplicate := self._duplicates.pop(content_hash)) is not None:
            self._forgotten[duplicate.page] = duplicate.plan
        self._drop_content(page)
        self._cached.drop(page)
        if not self._holders[page]:
            self._free.append(page)
