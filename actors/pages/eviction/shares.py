"""Callers whose cached pages are bounded: while one of them has more than its part, its own pages leave first. Pure.

Nobody's pages leave before memory is short, so a caller may have more than its part as long as nobody else needs the pages.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from actors.pages.eviction.policy import EvictionPolicy, PolicyFigures

_MOST_SCOPES = 65_536


class CacheShares:
    """The part of the pages, 0 to 1, that the cached ones of each scope may take. A scope that is not named has no bound."""

    def __init__(self) -> None:
        self._share_of: dict[bytes, float] = {}

    def __bool__(self) -> bool:
        return bool(self._share_of)

    def note(self, scope: bytes, share: float) -> None:
        """A request of this scope says its part; 1: no bound."""
        if share >= 1.0:
            self._share_of.pop(scope, None)
        elif len(self._share_of) < _MOST_SCOPES or scope in self._share_of:
            self._share_of[scope] = share

    def pages_of(self, scope: bytes, n_pages: int) -> float:
        """The most cached pages of a scope; math.inf: no bound."""
        share = self._share_of.get(scope)
        return math.inf if share is None else share * n_pages


class SharedEviction(EvictionPolicy):
    """`inner` chooses, unless scopes are above their bounds. Then the one that came above its bound first loses the page that
    has been without a holder for the longest time. That takes constant time, whatever the number of scopes is."""

    def __init__(self, inner: EvictionPolicy, n_pages: int, shares: CacheShares, scope_of_root: Callable[[int], bytes]) -> None:
        """`scope_of_root`: of the requests that have this root; b"": nobody is known."""
        self._inner, self._n_pages, self._shares, self._scope_of_root = inner, n_pages, shares, scope_of_root
        self._scope_of: dict[int, bytes] = {}  # by content hash, of pages whose scope is known
        self._hash_of: dict[int, int] = {}  # by page, the same ones
        self._cached_of: dict[bytes, OrderedDict[int, None]] = {}  # pages of each scope, the next one to leave first
        self._above = dict[bytes, None]()  # the scopes above their bounds, in the order in which they got there
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
            self._leave(page)

    def use(self, pages: list[int]) -> None:
        self._inner.use(pages)

    def evict(self) -> int:
        if self._above:
            page = next(iter(self._cached_of[next(iter(self._above))]))
            self._inner.remove([page])
            self._n_evicted += 1
        else:
            page = self._inner.evict()
        self._leave(page)
        return page

    def hand_over(self, page: int, to: int) -> None:
        self._inner.hand_over(page, to)
        if (content_hash := self._hash_of.pop(page, None)) is not None:
            self._hash_of[to] = content_hash

    def drop(self, page: int) -> None:
        self._inner.drop(page)
        self._leave(page)
        if (content_hash := self._hash_of.pop(page, None)) is not None:
            self._scope_of.pop(content_hash, None)

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
                scope = self._scope_of[content_hash]
                self._cached_of.setdefault(scope, OrderedDict())[page] = None
                self._judge(scope)

    def _leave(self, page: int) -> None:
        content_hash = self._hash_of.get(page)
        if content_hash is not None and (scope := self._scope_of[content_hash]) in self._cached_of:
            self._cached_of[scope].pop(page, None)
            self._judge(scope)

    def _judge(self, scope: bytes) -> None:
        """Note whether a scope is above its bound."""
        pages = self._cached_of[scope]
        if len(pages) > self._shares.pages_of(scope, self._n_pages):
            self._above[scope] = None
        else:
            self._above.pop(scope, None)
        if not pages:
            del self._cached_of[scope]


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
