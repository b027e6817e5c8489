"""Least recently used first: the page that has been without a holder for the longest time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice

from actors.pages.eviction.policy import EvictionPolicy, PolicyFigures


class LruEviction(EvictionPolicy):
    """One queue. A page becomes cached with or after the pages that continue it, so they leave before it."""

    reads_contents = False

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, page: object) -> bool:
        return page in self._pages

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        """Does nothing: pages are ordered by the time of their last release."""

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
        return {"lru": PolicyFigures(hits, evictions, ghost_hits=0)}
