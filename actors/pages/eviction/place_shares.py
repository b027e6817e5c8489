"""The contents of a tier of evicted pages by callers, where these are bounded: whose content leaves next. Pure.

A content belongs to the scope of the content before it; that of a first one to the scope of its root. Contents come in any
order, also before those that they continue, and roots are known only when a request has them. What is not known yet is settled
as soon as the content before it, or its root, is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from actors.pages.eviction.owned_entries import CacheShares, OwnedEntries

ScopeOf = Callable[[int], bytes]


@dataclass(frozen=True)
class ScopeBounds:
    """Callers with bounds. `scope_of_root`: of the requests that have this root; `scope_elsewhere`: of the page with this
    content hash, as far as other caches know it. b"": it is not known."""

    shares: CacheShares
    scope_of_root: ScopeOf
    scope_elsewhere: ScopeOf


class LeavesNext(NamedTuple):
    """The content that leaves; None: bounds say nothing. `is_refused`: the new content gets no place, because its caller has
    all of its part, and nothing of that can leave."""

    content_hash: int | None
    is_refused: bool = False


class PlaceShares:
    """The contents of one tier with `n_places` places, by content hash."""

    def __init__(self, n_places: int, bounds: ScopeBounds) -> None:
        self._bounds = bounds
        self._owned: OwnedEntries[int] = OwnedEntries(n_places, bounds.shares)
        self._unknown: dict[int, tuple[int, int]] = {}  # contents whose scope is not known: when they leave, their parents
        self._after: dict[int, dict[int, None]] = {}  # these by the content before them
        self._first, self._last = 0, 0  # when unknown ones leave: numbers in order
        self._reserved: dict[int, bytes] = {}  # scopes by place

    def scope_of(self, content_hash: int) -> bytes:
        """The scope of a content that is here; b"" if it is not known."""
        return self._owned.owner_of(content_hash)

    def enter(self, content_hash: int, parent: int, *, is_next: bool = False) -> None:
        """A content has come that was not here: the last one of its scope to leave, or the next one."""
        if scope := self._scope(content_hash, parent):
            self._owned.add(content_hash, scope, is_next=is_next)
            self._settle(content_hash, scope)
        else:
            self._unknown[content_hash] = self._order(is_next=is_next), parent
            self._after.setdefault(parent, {})[content_hash] = None

    def use(self, content_hash: int) -> None:
        """A content is the last one of its scope to leave."""
        if (unknown := self._unknown.get(content_hash)) is not None:
            self._unknown[content_hash] = self._order(), unknown[1]
        self._owned.use(content_hash)

    def leave(self, content_hash: int) -> None:
        """A content is here no more."""
        self._owned.remove(content_hash)
        if (unknown := self._unknown.pop(content_hash, None)) is not None:
            siblings = self._after[unknown[1]]
            del siblings[content_hash]
            if not siblings:
                del self._after[unknown[1]]

    def root_noted(self, root: int) -> None:
        """The scope of this root is known."""
        if root in self._after and (scope := self._bounds.scope_of_root(root)):
            self._settle(root, scope)

    def reserved(self, place: int, content_hash: int, parent: int) -> None:
        """A place is kept for a content that is on its way: it counts for its scope, until `given` with the same place."""
        if scope := self._scope(content_hash, parent):
            self._reserved[place] = scope
            self._owned.count(scope, 1)

    def given(self, place: int) -> None:
        """A place is not kept any more."""
        if (scope := self._reserved.pop(place, None)) is not None:
            self._owned.count(scope, -1)

    def leaves_next(self, content_hash: int, parent: int, pinned: Collection[int]) -> LeavesNext:
        """Who has to leave for this new content, as far as callers are bounded."""
        found = self._owned.next_above(pinned)
        if found is None and (scope := self._scope(content_hash, parent)) and self._owned.is_full_for(scope, 1):
            found = self._owned.next_of(scope, pinned)
            return LeavesNext(found, is_refused=found is None)
        return LeavesNext(found)

    def _scope(self, content_hash: int, parent: int) -> bytes:
        bounds = self._bounds
        return (
            self._owned.owner_of(parent)
            or bounds.scope_of_root(parent)
            or bounds.scope_elsewhere(parent)
            or bounds.scope_elsewhere(content_hash)
        )

    def _order(self, *, is_next: bool = False) -> int:
        if is_next:
            self._first -= 1
            return self._first
        self._last += 1
        return self._last

    def _settle(self, before: int, scope: bytes) -> None:
        """The scope of a content, or of a root, is known: so is that of all contents that continue it. They leave before those
        that were known, in their order."""
        left, found = [before], list[tuple[int, int]]()
        while left:
            for one in self._after.pop(left.pop(), ()):
                found.append((self._unknown.pop(one)[0], one))
                left.append(one)
        for _, one in sorted(found, reverse=True):
            self._owned.add(one, scope, is_next=True)
