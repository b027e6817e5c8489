"""Policies that may evict every cached page that no other cached page continues: the leaves of the tree of prefixes.

LRU and LFU need no tree, because their ranks of a page and of those that continue it stand in the right order by themselves.
First-in-first-out has them in the wrong order (a prefix is older than what continues it), and W-TinyLFU keeps them in several
queues. So these two count how many cached pages continue each content, and evict only where there are none.
"""

from __future__ import annotations

from abc import abstractmethod

from actors.pages.eviction.ghosts import Ghosts
from actors.pages.eviction.policy import EvictionPolicy


class LeafEviction(EvictionPolicy):
    """Knows contents and counts continuations; a subclass chooses which leaf to evict."""

    def __init__(self, n_pages: int) -> None:
        self._content_of: dict[int, tuple[int, int]] = {}  # (hash, parent's hash) of each known page, cached or held
        self._page_of: dict[int, int] = {}  # cached pages by the hashes of their contents
        self._n_after: dict[int, int] = {}  # by hash: cached pages that continue this content, if there are any
        self._ghosts = Ghosts(n_pages)

    @abstractmethod
    def _choose(self) -> int:
        """The leaf to evict. Raises: KeyError when no page is cached."""

    @abstractmethod
    def _freed(self, page: int) -> None:
        """The last cached page that continued this cached page has gone."""

    def __len__(self) -> int:
        return len(self._page_of)

    def __contains__(self, page: object) -> bool:
        return isinstance(page, int) and page in self._content_of and self._page_of.get(self._content_of[page][0]) == page

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        self._content_of[page] = content_hash, parent
        self._ghosts.computed(content_hash)

    def add(self, pages: list[int]) -> None:
        contents, page_of, n_after = self._content_of, self._page_of, self._n_after
        for page in pages:
            content_hash, parent = contents[page]
            page_of[content_hash] = page
            n_after[parent] = n_after.get(parent, 0) + 1

    def remove(self, pages: list[int]) -> None:
        contents, page_of, n_after = self._content_of, self._page_of, self._n_after
        for page in pages:
            content_hash, parent = contents[page]
            del page_of[content_hash]
            n_left = n_after[parent] - 1
            if n_left:
                n_after[parent] = n_left
                continue
            del n_after[parent]
            if parent in page_of:
                self._freed(page_of[parent])

    def evict(self) -> int:
        page = self._choose()
        self._ghosts.evicted(self._content_of[page][0])
        self.remove([page])
        return page

    def hand_over(self, page: int, to: int) -> None:
        self._content_of[to] = self._content_of[page]
        self._ghosts.kept(self._content_of[page][0])

    def drop(self, page: int) -> None:
        if page in self:
            self.remove([page])
        self._content_of.pop(page, None)

    def _is_leaf(self, page: int) -> bool:
        """True if no other cached page continues this cached page."""
        return self._content_of[page][0] not in self._n_after
