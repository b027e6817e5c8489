"""Least recently used first: the page that has been without a holder for the longest time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice

from actors.pages.eviction.ghosts import Ghosts
from actors.pages.eviction.policy import EvictionPolicy, PolicyFigures

_FULL_COUNT = 1024  # pages; the ghosts of a larger ledger are sampled, because this policy is chosen where time is short


class LruEviction(EvictionPolicy):
    """One queue. A page becomes cached with or after the pages that continue it, so they leave before it.
    Contents are not read, so the ledger tells the ghosts of those that it drops and computes."""

    reads_contents = False

    def __init__(self, n_pages: int) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()
        self.ghosts = self._ghosts = Ghosts(n_pages, _FULL_COUNT)

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, page: object) -> bool:
        return page in self._pages

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        """Tells the ghosts alone: pages are ordered by the time of their last release."""
        self._ghosts.computed(content_hash)

    def add(self, pages: list[int]) -> None:
        for page in pages:
            self._pages[page] = None

    def remove(self, pages: list[int]) -> None:
        for page in pages:
            del self._pages[page]

    def use(self, pages: list[int]) -> None:
        """Does nothing: pages are ordered by the time of their last release."""

    def evict(self) -> int:
        return self._pages.popitem(last=False)[0]

    def evicted_next(self, n: int) -> list[int]:
        return list(islice(self._pages, n))

    def hand_over(self, page: int, to: int) -> None:
        """Does nothing: pages are ordered by the time of their last release."""

    def drop(self, page: int) -> None:
        self._pages.pop(page, None)

    def figures(self, hits: int, evictions: int) -> Mapping[str, PolicyFigures]:
        return {"lru": PolicyFigures(hits, evictions, self._ghosts.hits)}
