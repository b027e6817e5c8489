"""Least frequently used first, with ageing, in constant time per page.

After "dynamic ageing" (Arlitt et al., Evaluating content management techniques for Web proxy caches, 2000): a page that becomes
cached gets the rank `age + uses`, the page of the lowest rank is evicted, and the age becomes that rank. The first computation
counts as a use, so pages that are never reused raise the age by one in each turnover of the cache, and a page with k uses
survives k - 1 turnovers. Pages that were popular long ago are evicted in this way. At most _MOST_USES uses are counted, so all
ranks lie in a window of _MOST_USES + 1, and a ring of as many queues replaces the usual heap.

    age                         age + _MOST_USES
     |  rank, rank, ...               |            each queue: least recently used first
     v                                v
    [ ]  [ ]  [ ]  ...               [ ]
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from actors.pages.eviction.ghosts import Ghosts
from actors.pages.eviction.policy import EvictionPolicy, PolicyFigures

# uses that are counted; simulated loads gave the best hit rates with 6 to 16 (tests/actors/pages/eviction/test_lfu.py)
_MOST_USES = 8


class LfuEviction(EvictionPolicy):
    """The ring of queues above. Pages of a prefix that many sequences share survive a flood of prompts that are seen once."""

    def __init__(self, n_pages: int) -> None:
        self._queues: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(_MOST_USES + 1)]
        self._age = 0  # the lowest rank that a page in a queue can have
        self._rank_of: dict[int, int] = {}  # of each cached page
        self._uses_of: dict[int, int] = {}  # of each page that was reused, cached or held; all others have 1
        self._hash_of: dict[int, int] = {}  # the content of each known page
        self._ghosts = Ghosts(n_pages)

    def __len__(self) -> int:
        return len(self._rank_of)

    def __contains__(self, page: object) -> bool:
        return page in self._rank_of

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        self._hash_of[page] = content_hash
        self._ghosts.computed(content_hash)

    def use(self, pages: list[int]) -> None:
        for page in pages:
            self._uses_of[page] = min(self._uses_of.get(page, 1) + 1, _MOST_USES)

    def add(self, pages: list[int]) -> None:
        for page in pages:
            rank = self._age + self._uses_of.get(page, 1)
            self._rank_of[page] = rank
            self._queue(rank)[page] = None

    def remove(self, pages: list[int]) -> None:
        for page in pages:
            del self._queue(self._rank_of.pop(page))[page]

    def evict(self) -> int:
        if not self._rank_of:
            raise KeyError("evict: expected a cached page, got none")
        while not self._queue(self._age):
            self._age += 1
        page = next(iter(self._queue(self._age)))
        self.remove([page])
        self._ghosts.evicted(self._hash_of[page])
        return page

    def hand_over(self, page: int, to: int) -> None:
        if page in self._uses_of:
            self._uses_of[to] = self._uses_of[page]
        self._hash_of[to] = self._hash_of[page]
        self._ghosts.kept(self._hash_of[page])

    def drop(self, page: int) -> None:
        self._uses_of.pop(page, None)
        self._hash_of.pop(page, None)
        if page in self._rank_of:
            self.remove([page])

    def figures(self, hits: int, evictions: int) -> Mapping[str, PolicyFigures]:
        return {"lfu": PolicyFigures(hits, evictions, self._ghosts.hits)}

    def _queue(self, rank: int) -> OrderedDict[int, None]:
        return self._queues[rank % len(self._queues)]
