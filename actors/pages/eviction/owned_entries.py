"""The entries of a cache by their owners, where an owner may take a part of it only: who has more, and what of it leaves. Pure.

A part is a bound while the cache is full, and none before: room that nobody else needs is used.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_MOST_SCOPES = 65_536


class CacheShares:
    """The part of a cache, 0 to 1, that the entries of each scope may take. A scope that is not named has no bound."""

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

    def room_of(self, scope: bytes, room: int) -> float:
        """The most that a scope may take of a cache of this size; math.inf: no bound."""
        share = self._share_of.get(scope)
        return math.inf if share is None else share * room


class OwnedEntries(Generic[K]):
    """Entries by key, each with a size and an owner, in a cache of `room` in all. Each method takes constant time."""

    def __init__(self, room: int, shares: CacheShares) -> None:
        self._room, self._shares = room, shares
        self._entries: dict[K, tuple[bytes, int]] = {}  # owner and size
        self._keys_of: dict[bytes, OrderedDict[K, None]] = {}  # by owner, the next to leave first
        self._size_of: dict[bytes, int] = {}
        self._above = dict[bytes, None]()  # owners with more than their parts, in the order in which they got there

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def add(self, key: K, owner: bytes, size: int = 1, *, is_next: bool = False) -> None:
        """An entry has come, whose key none has: the last one of its owner to leave, or the next one."""
        self._entries[key] = owner, size
        keys = self._keys_of.setdefault(owner, OrderedDict())
        keys[key] = None
        if is_next:
            keys.move_to_end(key, last=False)
        self.count(owner, size)

    def use(self, key: K) -> None:
        """An entry is the last one of its owner to leave. Does nothing for an unknown one."""
        if (found := self._entries.get(key)) is not None:
            self._keys_of[found[0]].move_to_end(key)

    def remove(self, key: K) -> None:
        """An entry has left. Does nothing for an unknown one."""
        if (found := self._entries.pop(key, None)) is None:
            return
        owner, size = found
        keys = self._keys_of[owner]
        del keys[key]
        if not keys:
            del self._keys_of[owner]
        self.count(owner, -size)

    def count(self, owner: bytes, size: int) -> None:
        """An owner takes so much more of the cache, or less, besides its entries."""
        self._size_of[owner] = self._size_of.get(owner, 0) + size
        self._judge(owner)
        if not self._size_of[owner]:
            del self._size_of[owner]

    def owner_of(self, key: K) -> bytes:
        """The owner of an entry; b"" if there is no such entry."""
        return self._entries.get(key, (b"", 0))[0]

    def size_of(self, owner: bytes) -> int:
        """What an owner takes of the cache."""
        return self._size_of.get(owner, 0)

    def is_full_for(self, owner: bytes, size: int) -> bool:
        """True if an owner would have more than its part with so much more."""
        return self.size_of(owner) + size > self._shares.room_of(owner, self._room)

    def next_of(self, owner: bytes, kept: Collection[K] = ()) -> K | None:
        """The entry of an owner that leaves next, and is none of `kept`: those that are passed over become the last ones."""
        keys = self._keys_of.get(owner, ())
        for _ in range(len(keys)):
            key = next(iter(keys))
            if key not in kept:
                return key
            self.use(key)
        return None

    def next_above(self, kept: Collection[K] = ()) -> K | None:
        """The entry that leaves next because its owner has more than its part, and is none of `kept`: one of the owner that has
        had more for the longest time. None if there is none."""
        for owner in self._above:
            if (key := self.next_of(owner, kept)) is not None:
                return key
        return None

    def _judge(self, owner: bytes) -> None:
        if self.is_full_for(owner, 0):
            self._above[owner] = None
        else:
            self._above.pop(owner, None)
