"""A page ledger that forgets contents on request, while sequences go on with the pages that they hold.

A held page whose content was forgotten stays until its last holder ends, and nobody else finds it. So do the pages after it in
the sequences that hold it: they continue what was forgotten, and a caller who had them forgotten must not find them again.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace

from actors.pages.eviction.owned_entries import CacheShares
from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.eviction.shares import SharedEviction
from actors.pages.forgetting import Forgetting, KnownPage, RootScopes, pages_to_forget
from actors.pages.ledger_statistics import LedgerStatistics
from actors.pages.page_ledger import EvictedPage, PageLedger
from actors.pages.seal_table import SealTable

_Content = tuple[int, int, bytes]  # hash, parent's hash, tokens


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

    def allocate_all(self, n_pages: int) -> list[int]:
        """As so many calls of `allocate`, in a part of the time. At least so many pages must be available."""
        free = self._free
        pages = [free.popleft() for _ in range(min(n_pages, len(free)))]
        pages += self._evict_all(min(n_pages - len(pages), len(self._cached)))
        while len(pages) < n_pages and self._open:
            pages.append(self._open.pop())
        assert len(pages) == n_pages, "the available pages were counted"
        holders = self._holders
        for page in pages:
            assert holders[page] == 0, f"page {page} was free, and held by {holders[page]}"
            holders[page] = 1
        self._n_references += n_pages
        return pages

    def _evict_all(self, n_pages: int) -> list[int]:
        """Take so many cached pages, as so many calls of `_evict`. It takes a third of the time where it makes no difference
        that the policy hears of dropped contents only afterwards, because it reads none, and no content has another page."""
        if self._reader is not None or self._duplicates.by_hash:
            return [self._evict()[0] for _ in range(n_pages)]
        page_of, hash_of, content_of, evicted = self._page_of, self._hash_of, self._content, list[EvictedPage]()
        pages = [self._cached.evict() for _ in range(n_pages)]
        for page in pages:
            content = self._content_of(page)
            del page_of[content[0]], hash_of[page], content_of[page]
            evicted.append((page, content))
        hashes = [content[0] for _, content in evicted]
        self._forget_states(pages, hashes)
        self._evictions += n_pages
        mask = self._ghosts.mask
        for content_hash in [one for one in hashes if not one & mask]:
            self._ghosts.evicted(content_hash)
        if evicted and self.on_evicted is not None:
            self.on_evicted(evicted)
        return pages

    def _forget_states(self, pages: list[int], hashes: list[int]) -> None:
        """The contents of these pages, with these hashes, are not known any more."""
        for page in self._tail_of.keys() & pages if self._tail_of else ():
            self.tails.discard(page)
        if self._seals is not None:
            self._seals.erase_all(pages)
        for unapplied in (self._planned, *self._unapplied):
            unapplied.difference_update(hashes)
        sealed = self._sealed
        self._dropped += [one for one in hashes if sealed.pop(one, 0) == 0] if sealed else hashes

    def seal_all(self, pages: list[int], contents: Iterable[_Content], before: int | None) -> None:
        """As so many calls of `seal` for held pages that have their contents, which were computed before they came here, nobody
        knows when: they are older than any age. before: the page before the first one; each of the others follows the one
        before it."""
        for page, content in zip(pages, contents, strict=False):
            self.seal(page, *content, is_planned=False, before=before)
            self._since_s[page] = -math.inf
            before = page

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

    def scope_of(self, content_hash: int) -> bytes:
        """The scope of a known content; b"" if it has none, or callers are not bounded."""
        return self._cached.scope_of(content_hash) if isinstance(self._cached, SharedEviction) else b""

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
