"""Callers whose cached pages are bounded: while one of them has more than its part, its own pages leave first. Pure.

Nobody's pages leave before memory is short, so a caller may have more than its part as long as nobody else needs the pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from actors.pages.eviction.owned_entries import CacheShares, OwnedEntries
from actors.pages.eviction.policy import EvictionPolicy, PolicyFigures


class SharedEviction(EvictionPolicy):
    """`inner` chooses, unless scopes are above their bounds. Then the one that came above its bound first loses the page that
    has been without a holder for the longest time. That takes constant time, whatever the number of scopes is."""

    def __init__(self, inner: EvictionPolicy, n_pages: int, shares: CacheShares, scope_of_root: Callable[[int], bytes]) -> None:
        """`scope_of_root`: of the requests that have this root; b"": nobody is known."""
        self._inner, self._scope_of_root = inner, scope_of_root
        self._scope_of: dict[int, bytes] = {}  # by content hash, of pages whose scope is known
        self._hash_of: dict[int, int] = {}  # by page, the same ones
        self._owned: OwnedEntries[int] = OwnedEntries(n_pages, shares)  # the cached pages of these, by scope
        self._n_evicted = 0  # because of a bound

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, page: object) -> bool:
        return page in self._inner

    def take_over(self, contents: Iterable[tuple[int, int, int]]) -> None:
        """Learn the pages of a ledger that had no bounds: (page, content hash, parent's hash)."""
        known = {content_hash: (page, parent) for page, content_hash, parent in contents}
        in_order = _prefixes_first({content_hash: parent for content_hash, (_, parent) in known.items()})
        for content_hash in in_order:
            page, parent = known[content_hash]
            self._note_scope(page, content_hash, parent)
        self._note_cached(page for one in reversed(in_order) if (page := known[one][0]) in self._inner)

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        self._note_scope(page, content_hash, parent)
        if self._inner.reads_contents:
            self._inner.learn(page, content_hash, parent)

    def add(self, pages: list[int]) -> None:
        self._inner.add(pages)
        self._note_cached(pages)

    def remove(self, pages: list[int]) -> None:
        self._inner.remove(pages)
        for page in pages:
            self._owned.remove(page)

    def use(self, pages: list[int]) -> None:
        self._inner.use(pages)

    def evict(self) -> int:
        page = self._owned.next_above()
        if page is not None:
            self._inner.remove([page])
            self._n_evicted += 1
        else:
            page = self._inner.evict()
        self._owned.remove(page)
        return page

    def hand_over(self, page: int, to: int) -> None:
        self._inner.hand_over(page, to)
        if (content_hash := self._hash_of.pop(page, None)) is not None:
            self._hash_of[to] = content_hash

    def drop(self, page: int) -> None:
        self._inner.drop(page)
        self._owned.remove(page)
        if (content_hash := self._hash_of.pop(page, None)) is not None:
            self._scope_of.pop(content_hash, None)

    def scope_of(self, content_hash: int) -> bytes:
        """The scope of a known content; b"" if it has none, or is not known."""
        return self._scope_of.get(content_hash, b"")

    def figures(self, hits: int, evictions: int) -> Mapping[str, PolicyFigures]:
        """Those of `inner`, and as "share" the evictions because of a bound."""
        return {**self._inner.figures(hits, evictions - self._n_evicted), "share": PolicyFigures(0, self._n_evicted, 0)}

    def _note_scope(self, page: int, content_hash: int, parent: int) -> None:
        scope = self._scope_of.get(parent) or self._scope_of_root(parent)
        if scope:
            self._scope_of[content_hash], self._hash_of[page] = scope, content_hash

    def _note_cached(self, pages: Iterable[int]) -> None:
        for page in pages:
            if (content_hash := self._hash_of.get(page)) is not None:
                self._owned.add(page, self._scope_of[content_hash])


def _prefixes_first(parents: Mapping[int, int]) -> list[int]:
    """The hashes of known pages, each after the page that it continues. parents: by hash."""
    ordered = dict[int, None]()
    for content_hash in parents:
        chain = list[int]()
        while content_hash in parents and content_hash not in ordered:
            chain.append(content_hash)
            content_hash = parents[content_hash]
        ordered.update(dict.fromkeys(reversed(chain)))
    return list(ordered)
