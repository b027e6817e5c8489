"""Which KV pages are free, how many holders each has, and which can be found again by their content.

Every page is in exactly one of three states:

    | state  | holders | content known | listed in                     |
    |--------|---------|---------------|-------------------------------|
    | free   | 0       | no            | `_free`                       |
    | cached | 0       | yes           | the eviction policy           |
    | held   | >= 1    | no or yes     | the page lists of its holders |

free -> held (allocate) -> cached or free (last release) -> held (acquire by content) or free (eviction, inside allocate).
A page is sealed when the plan that completes it is made: steps run in order, so any later plan may read it. Until that plan has
been applied the content may still be lost: `drop_unapplied` forgets it when the steps in flight are lost. A `SealTable` keeps
what has been applied in shared memory, and the ledger of the next scheduler adopts it.

A page whose content is known can always be found, because the content of all pages before it is known as well. Whoever holds a
page also holds the pages before it, or duplicates of them (`duplicate_pages.py`), and gives it back before them; and policies
evict a page only after the pages that continue it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import numpy as np

from actors.pages.duplicate_pages import DuplicatePages
from actors.pages.eviction.ghosts import Ghosts
from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.ledger_statistics import LedgerStatistics
from actors.pages.open_pages import OpenPages
from actors.pages.page_hash import whole_chains
from actors.pages.prompt_tails import PromptTails
from actors.pages.seal_table import SealTable

_Content = tuple[int, int, bytes]  # hash, parent's hash, tokens
EvictedPage = tuple[int, _Content]  # a page, and the content that it had


class PageLedger:
    """Reference counts and content index of `n_pages` pages. `eviction` decides which cached page is overwritten; `seals` keeps
    the content of pages for the next scheduler."""

    def __init__(self, n_pages: int, eviction: EvictionPolicy, seals: SealTable | None = None) -> None:
        self.n_pages, self._seals = n_pages, seals
        self._holders = [0] * n_pages
        self._free: deque[int] = deque(range(n_pages))
        self._open: OpenPages | None = None  # free ones that the last scheduler has left; they are used last
        self._cached, self._reader = eviction, eviction if eviction.reads_contents else None
        self._page_of, self._hash_of = dict[int, int](), dict[int, int]()  # content hash -> page, and back
        self._content: dict[int, _Content] = {}  # by page; that of an adopted page is read from its record when it is needed
        self._ghosts = eviction.ghosts or Ghosts(0, is_off=True)  # off: the policy keeps its own
        self._duplicates, self.tails = DuplicatePages(), PromptTails()  # of pages that are held, or whose content is known
        self._tail_of = self.tails.place_of
        self._copied: list[int] = []  # by the plan that is being made, which has one holder of each
        self._planned: set[int] = set()  # hashes sealed by the plan that is being made
        self._unapplied: deque[set[int]] = deque()  # those of each plan in flight, the oldest plan first
        self._sealed, self._dropped = dict[int, None](), list[int]()  # since the last `take_changes`, in order
        self.on_evicted: Callable[[list[EvictedPage]], None] | None = None  # told of pages whose contents no page has any more
        self._plan = self._n_references = self._hits = self._evictions = 0  # the plan that is made, the sum of all holders

    @property
    def n_available(self) -> int:
        """Pages that could be allocated now."""
        return self._n_free + len(self._cached)

    @property
    def _n_free(self) -> int:
        return len(self._free) + (len(self._open) if self._open is not None else 0)

    @property
    def n_known(self) -> int:
        """Full pages whose content is known, held or not."""
        return len(self._page_of)

    def find(self, content_hash: int, parent: int, tokens: bytes) -> int | None:
        """The page with this content, if an earlier plan than the one being made completes it; else None."""
        page = self._page_of.get(content_hash)
        if page is None or content_hash in self._planned or self._content_of(page) != (content_hash, parent, tokens):
            return None
        return page

    def is_planned(self, content_hash: int) -> bool:
        """True if the plan that is being made completes this content; then the next plan can share it."""
        return content_hash in self._planned

    def acquire(self, pages: list[int]) -> None:
        """Add one holder to each of these distinct pages, which `find` has returned."""
        self._cached.remove([page for page in pages if self._holders[page] == 0])
        for page in pages:
            self._holders[page] += 1
        self._n_references += len(pages)

    def hold_copied(self, page: int) -> None:
        """The plan that is being made copies this page, which has a tail: nobody overwrites it until the plan is sent."""
        self.acquire([page])
        self._copied.append(page)

    def count_hits(self, pages: list[int]) -> None:
        """Count the reuse of these pages, held by a sequence that has entered a slot without computing them."""
        self._hits += len(pages)
        self._cached.use(pages)

    def allocate(self) -> int | None:
        """A page without content, with one holder. Evicts a cached page when none is free; None when every page is held."""
        if self._free:
            page = self._free.popleft()
        elif self._cached:
            page, _ = self._evict()
        elif self._open:
            page = self._open.pop()
        else:
            return None
        assert self._holders[page] == 0, f"page {page} was free, and held by {self._holders[page]}"
        self._holders[page] = 1
        self._n_references += 1
        return page

    def take_open(self, parent: int, tokens: bytes) -> tuple[int, int] | None:
        """A page that the last scheduler has left partly filled, now with one holder, and how many of these tokens it holds.
        parent: the hash of the page before. None if there is none."""
        found = self._open.take(parent, tokens) if self._open else None
        if found is not None:
            self._holders[found[0]] = 1
            self._n_references += 1
        return found

    def seal(self, page: int, content_hash: int, parent: int, tokens: bytes, is_planned: bool) -> None:
        """Note the content that a page has once a plan has run: the one being made if `is_planned`, else the last one sent."""
        content, plan = (content_hash, parent, tokens), self._plan if is_planned else self._plan - 1
        known = self._page_of.get(content_hash)
        if known is None:
            self._know(page, content, plan)
            self._sealed[content_hash] = None
            if self._reader is not None:
                self._reader.learn(page, content_hash, parent)
            if content_hash in self._ghosts.hashes:
                self._ghosts.computed(content_hash)
        elif known != page and self._content_of(known) == content:
            self._duplicates.add(page, content_hash, plan)  # it stays private as long as the other page is there

    def adopt(self) -> int:
        """Adopt the pages whose content the seal table has; all pages must be free now. Returns how many. A page whose prefix
        is missing could never be found, so it stays free. `inventory` tells of these pages, `take_changes` does not."""
        if self._seals is None:
            return 0
        (pages, hashes, parents), is_free = whole_chains(*self._seals.read()), np.ones(self.n_pages, bool)
        self._open = OpenPages(self._seals)
        is_free[pages] = is_free[self._open.pages] = False
        numbers, contents = pages.tolist(), hashes.tolist()
        self._page_of, self._hash_of = dict(zip(contents, numbers, strict=True)), dict(zip(numbers, contents, strict=True))
        self._free = deque(np.flatnonzero(is_free).tolist())
        if self._reader is not None:
            for content in zip(numbers, contents, parents.tolist(), strict=True):
                self._reader.learn(*content)
        self._cached.add(numbers)
        return len(numbers)

    def commit_plan(self) -> None:
        """The plan that was being made is sent: the next plan may share the pages that it seals."""
        self._unapplied.append(self._planned)
        self._planned = set()
        self._plan += 1
        self.tails.end_plan()
        if self._copied:
            self.release(self._copied)
            self._copied = []

    def apply_plan(self) -> None:
        """The oldest plan in flight has been applied: the pages that it sealed have their content."""
        applied = self._unapplied.popleft()
        if self._seals is not None:
            for content_hash in applied:
                page = self._page_of[content_hash]
                self._seals.record(page, *self._content_of(page))

    def drop_unapplied(self) -> set[int]:
        """The plans in flight are lost: forget the content of every page that they sealed. Returns these pages."""
        lost = self._duplicates.drop(self._plan - len(self._unapplied))
        self.tails.clear()
        for content_hash in [content_hash for hashes in [*self._unapplied, self._planned] for content_hash in hashes]:
            page = self._page_of.get(content_hash)
            if page is not None:
                lost.add(page)
                self._drop_content(page)
                self._cached.drop(page)
                if self._holders[page] == 0:
                    self._free.append(page)
        self._unapplied, self._planned = deque(), set()
        return lost

    def release(self, pages: list[int]) -> None:
        """Remove one holder of each page. A page is evicted before the pages of the prefix that it continues."""
        cached = []
        for page in reversed(pages):
            self._holders[page] -= 1
            assert self._holders[page] >= 0, f"page {page} released more often than held"
            if self._holders[page] == 0:
                if page in self._hash_of:
                    cached.append(page)
                    continue
                self._free.append(page)
                if page in self._tail_of:
                    self.tails.discard(page)
                if self._seals is not None:
                    self._seals.erase(page)
                if self._duplicates.by_hash and (known := self._duplicate_released(page)) is not None:
                    cached.append(known)
        self._n_references -= len(pages)
        self._cached.add(cached)

    def take_changes(self) -> tuple[list[int], list[int]]:
        """(hashes sealed, hashes dropped) since the last call. A receiver must remove the dropped ones first."""
        sealed, dropped, self._sealed, self._dropped = self._sealed, self._dropped, {}, []
        return list(sealed), dropped

    def inventory(self) -> list[int]:
        """Every content hash that can be found now."""
        return list(self._page_of)

    def statistics(self) -> LedgerStatistics:
        """Pages by state."""
        free, cached = self._n_free, len(self._cached)
        held, by_policy = self.n_pages - free - cached, self._cached.figures(self._hits, self._evictions)
        return LedgerStatistics(self.n_pages, free, cached, held, self._hits, self._evictions, by_policy)

    def audit(self, held_by: list[list[int]]) -> None:
        """Compare the counts with `held_by`, the page lists of all holders. The time depends on the held pages only: a GPU has
        hundreds of thousands of pages.

        Raises: AssertionError naming the first page whose count is wrong."""
        expected = Counter(page for pages in held_by for page in pages)
        is_right = all(self._holders[page] == holders for page, holders in expected.items())
        is_whole = self._n_free + len(self._cached) + len(expected) == self.n_pages
        if not (is_right and is_whole and self._n_references == expected.total()):
            for page, holders in enumerate(self._holders):
                assert holders == expected[page], f"page {page}: {holders} holders in the ledger, {expected[page]} in the lists"
            raise AssertionError(f"pages: expected {self.n_pages}, got {self.statistics()} and {self._n_references} references")

    def _evict(self) -> tuple[int, int]:
        """Take a cached page, which is in no list then, and the hash of the content that it had."""
        page = self._cached.evict()
        content = self._content_of(page)
        self._drop_content(page)
        self._cached.drop(page)
        self._evictions += 1
        if not content[0] & self._ghosts.mask and content[0] not in self._page_of:
            self._ghosts.evicted(content[0])
        if self.on_evicted is not None and content[0] not in self._page_of:
            self.on_evicted([(page, content)])
        return page, content[0]

    def _know(self, page: int, content: _Content, plan: int) -> None:
        """This page has this content once this plan has run."""
        self._page_of[content[0]], self._hash_of[page], self._content[page] = page, content[0], content
        n_later = self._plan - plan  # plans that were made after it, or are being made
        if not n_later:
            self._planned.add(content[0])
        elif n_later <= len(self._unapplied):
            self._unapplied[-n_later].add(content[0])
        elif self._seals is not None:
            self._seals.record(page, *content)

    def _duplicate_released(self, page: int) -> int | None:
        """A page without known content has lost its last holder. Returns the known page of its content if that is cached, and
        takes it out of the cache: it must not be evicted before the pages that continue it, which are added now."""
        content_hash = self._duplicates.remove(page)
        known = None if content_hash is None else self._page_of[content_hash]
        if known is None or self._holders[known]:
            return None
        self._cached.remove([known])
        return known

    def _content_of(self, page: int) -> _Content:
        """The content of a known page."""
        content = self._content.get(page)
        if content is None:
            assert self._seals is not None, f"page {page}: its content is known, and was never told"
            content = self._content[page] = self._seals.content(page)
        return content

    def _drop_content(self, page: int) -> None:
        content = self._content_of(page)
        content_hash = self._hash_of.pop(page)
        del self._content[page], self._page_of[content_hash]
        if page in self._tail_of:
            self.tails.discard(page)
        if self._seals is not None:
            self._seals.erase(page)
        for hashes in (self._planned, *self._unapplied):  # a later plan may give this content to another page
            hashes.discard(content_hash)
        if self._duplicates.by_hash and (duplicate := self._duplicates.pop(content_hash)) is not None:
            self._cached.hand_over(page, duplicate.page)
            self._know(duplicate.page, content, duplicate.plan)
            return
        if self._sealed.pop(content_hash, 0) == 0:  # it was sealed before the last `take_changes`
            self._dropped.append(content_hash)
