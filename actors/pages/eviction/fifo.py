"""First in, first out: the content that was computed first, if nothing that is cached continues it.

It ignores every use, and so shows what uses are worth. A prefix is older than what continues it: when its last continuation has
gone, it is mostly the next to go.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count

from actors.pages.eviction.leaves import LeafEviction
from actors.pages.eviction.policy import PolicyFigures

_PAGE_BITS = 32  # an entry of the heap is a number: when the content was computed, then the page


class FifoEviction(LeafEviction):
    """A heap of leaves. An entry stays when its page is reused, and is looked at when it comes to the top: so a page has at
    most one entry, and the time per page is logarithmic."""

    def __init__(self, n_pages: int) -> None:
        super().__init__(n_pages)
        self._numbers = count()
        self._entry_of: dict[int, int] = {}  # of each known page: what its entry must be
        self._heap: list[int] = []
        self._has_entry = bytearray(n_pages)  # by page

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        super().learn(page, content_hash, parent)
        self._entry_of[page] = next(self._numbers) << _PAGE_BITS | page

    def add(self, pages: list[int]) -> None:
        super().add(pages)
        for page in pages:
            if self._is_leaf(page):
                self._freed(page)

    def use(self, pages: list[int]) -> None:
        """Does nothing: uses do not count."""

    def hand_over(self, page: int, to: int) -> None:
        super().hand_over(page, to)
        self._entry_of[to] = self._entry_of[page] >> _PAGE_BITS << _PAGE_BITS | to

    def drop(self, page: int) -> None:
        super().drop(page)
        self._entry_of.pop(page, None)

    def figures(self, hits: int, evictions: int) -> Mapping[str, PolicyFigures]:
        return {"fifo": PolicyFigures(hits, evictions, self._ghosts.hits)}

    def _freed(self, page: int) -> None:
        if not self._has_entry[page]:
            self._has_entry[page] = True
            heapq.heappush(self._heap, self._entry_of[page])

    def _choose(self) -> int:
        while self._heap:
            entry = heapq.heappop(self._heap)
            page = entry & (1 << _PAGE_BITS) - 1
            self._has_entry[page] = False
            if page in self and self._is_leaf(page):
                if entry == self._entry_of[page]:
                    return page
                self._freed(page)  # it has another content than the one that this entry stands for
        raise KeyError("evict: expected a cached page, got none")
