"""W-TinyLFU: a new page replaces one of the main part only if it is asked for at least as often.

After Einziger, Friedman and Manes (TinyLFU: a highly efficient cache admission policy, 2017) and their library Caffeine. Three
queues, each least recently used first:

    learn -> WINDOW --asked for as often as the victim--> PROBATION --used--> PROTECTED
                |                                            | ^                |
                '-> evicted                         evicted <-' '--too many-----'

How often a content is asked for says a sketch (`sketch.py`), which also knows contents that are not cached. The window's share
of the cache follows the load (`window_share.py`). Conversations, whose last pages were asked for once and come back soon, get a
large window and are served as by LRU. Hot prefixes among many single prompts get a small one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import IntEnum

from actors.pages.eviction.leaves import LeafEviction
from actors.pages.eviction.policy import PolicyFigures
from actors.pages.eviction.sketch import FrequencySketch
from actors.pages.eviction.window_share import WindowShare

_PROTECTED_SHARE = 0.8  # of the main part
_LEAST_MAIN = 0.5  # of what the window leaves to the main part


class _CachePart(IntEnum):
    WINDOW = 0
    PROBATION = 1
    PROTECTED = 2


class WTinyLfuEviction(LeafEviction):
    """The three queues above, by the time of the last release. A page that would be next, but is continued by a cached page of
    another part, waits outside of its queue."""

    def __init__(self, n_pages: int, fixed_share: float | None = None) -> None:
        """fixed_share: of the window, 0 to 1; None: it follows the load."""
        super().__init__(n_pages)
        self._sketch = FrequencySketch(n_pages)
        self._fixed_share = fixed_share
        self._share = WindowShare(WTinyLfuEviction, n_pages) if fixed_share is None else None
        self._part_of: dict[int, _CachePart] = {}  # of each known page, cached or held
        self._queues: tuple[OrderedDict[int, None], ...] = tuple(OrderedDict() for _ in _CachePart)
        self._n_cached = [0] * len(_CachePart)  # by part, leaves and others

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        super().learn(page, content_hash, parent)
        self._part_of[page] = _CachePart.WINDOW
        self._sketch.add(content_hash)
        if self._share is not None:
            self._share.learn(content_hash, parent)

    def use(self, pages: list[int]) -> None:
        for page in reversed(pages):
            content_hash = self._content_of[page][0]
            self._sketch.add(content_hash)
            if self._part_of[page] is _CachePart.PROBATION:
                self._part_of[page] = _CachePart.PROTECTED
            if self._share is not None:
                self._share.use(content_hash)

    def add(self, pages: list[int]) -> None:
        super().add(pages)
        for page in pages:
            part = self._part_of[page]
            self._queues[part][page] = None
            self._n_cached[part] += 1

    def remove(self, pages: list[int]) -> None:
        super().remove(pages)
        for page in pages:
            part = self._part_of[page]
            self._queues[part].pop(page, None)
            self._n_cached[part] -= 1

    def hand_over(self, page: int, to: int) -> None:
        super().hand_over(page, to)
        self._part_of[to] = self._part_of[page]

    def drop(self, page: int) -> None:
        if self._share is not None and page in self._content_of:
            self._share.forget(self._content_of[page][0])
        super().drop(page)
        self._part_of.pop(page, None)

    def figures(self, hits: int, evictions: int) -> Mapping[str, PolicyFigures]:
        return {"w-tinylfu": PolicyFigures(hits, evictions, self._ghosts.hits)}

    def _freed(self, page: int) -> None:
        """A page that had to wait for its continuations is the next in its queue; any other one has kept its place."""
        queue = self._queues[self._part_of[page]]
        if page not in queue:
            queue[page] = None
            queue.move_to_end(page, last=False)

    def _choose(self) -> int:
        """Constant time, if averaged: a page that is passed over comes back into its queue once, by `_freed` or `add`."""
        self._fill_main()
        self._demote()
        window, probation, protected = self._queues
        while True:
            main = probation or protected
            if not main:
                return self._first_leaf(window)
            victim = next(iter(main))
            if not self._is_leaf(victim):
                del main[victim]
                continue
            if not window or self._n_cached[_CachePart.WINDOW] <= self._window_limit():
                return victim
            candidate = next(iter(window))
            if self._is_leaf(candidate) and self._frequency(candidate) < self._frequency(victim):
                return candidate
            self._move(candidate, _CachePart.PROBATION)
            if self._is_leaf(candidate):
                return victim

    def _first_leaf(self, queue: OrderedDict[int, None]) -> int:
        while queue:
            page = next(iter(queue))
            if self._is_leaf(page):
                return page
            del queue[page]
        raise KeyError("evict: expected a cached page, got none")

    def _window_limit(self) -> float:
        share = self._share.share if self._share is not None else self._fixed_share or 0.0
        return max(share * len(self), 1)

    def _fill_main(self) -> None:
        """While the main part is small (at first, and after the window was large), pages enter it whatever they are: at most
        four for each eviction."""
        window = self._queues[_CachePart.WINDOW]
        limit = len(self) - _LEAST_MAIN * (len(self) - self._window_limit())
        for _ in range(4):
            if not window or self._n_cached[_CachePart.WINDOW] <= limit:
                return
            self._move(next(iter(window)), _CachePart.PROBATION)

    def _demote(self) -> None:
        """Move pages from the protected part to probation while there are too many, at most two for each eviction."""
        protected = self._queues[_CachePart.PROTECTED]
        for _ in range(2):
            n_main = len(self) - self._n_cached[_CachePart.WINDOW]
            if not protected or self._n_cached[_CachePart.PROTECTED] <= _PROTECTED_SHARE * n_main:
                return
            self._move(next(iter(protected)), _CachePart.PROBATION)

    def _move(self, page: int, part: _CachePart) -> None:
        """Make this leaf the last page of another part's queue."""
        before = self._part_of[page]
        del self._queues[before][page]
        self._n_cached[before] -= 1
        self._part_of[page] = part
        self._queues[part][page] = None
        self._n_cached[part] += 1

    def _frequency(self, page: int) -> int:
        return self._sketch.estimate(self._content_of[page][0])
