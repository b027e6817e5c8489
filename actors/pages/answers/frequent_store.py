"""Values of different sizes within a bound of bytes, by W-TinyLFU: one that is asked for often is not replaced by one that is
asked for once.

After Einziger, Friedman and Manes (TinyLFU: a highly efficient cache admission policy, 2017), as the eviction of pages is
(`actors/pages/eviction/w_tinylfu.py`). Values enter a window. What leaves it is weighed against the one that the main part
would give up, by how often each was asked for lately. Until the bound is reached nothing leaves. While an owner has more than
its part, what leaves is its value that was not used for the longest time. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, KeysView
from enum import IntEnum
from typing import Generic, TypeVar

from actors.pages.eviction.owned_entries import CacheShares, OwnedEntries
from actors.pages.eviction.sketch import FrequencySketch

_WINDOW_SHARE = 0.1  # of the bytes: what has just come may be asked for again soon
_PROTECTED_SHARE = 0.8  # of the rest
_USUAL_BYTES = 1024  # of a value
_LEAST_COUNTS, _MOST_COUNTS = 1 << 10, 1 << 17  # that the sketch is made for

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _StorePart(IntEnum):
    WINDOW = 0
    PROBATION = 1
    PROTECTED = 2


class _StoredValue(Generic[V]):
    __slots__ = ("content_hash", "n_bytes", "part", "value")

    def __init__(self, value: V, n_bytes: int, content_hash: int) -> None:
        self.value, self.n_bytes, self.content_hash, self.part = value, n_bytes, content_hash, _StorePart.WINDOW


class FrequentStore(Generic[K, V]):
    """At most `max_bytes` of values by key. Each has a hash of 64 bits of what it is asked for by; it must be spread evenly.
    `n_share_evicted`: values that left because of a bound of their owner."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.n_bytes = max_bytes, 0
        self._entries: dict[K, _StoredValue[V]] = {}
        self._queues: tuple[OrderedDict[K, None], ...] = tuple(OrderedDict() for _ in _StorePart)  # least recently used first
        self.shares, self.n_share_evicted = CacheShares(), 0
        self._owned: OwnedEntries[K] = OwnedEntries(max_bytes, self.shares)  # those that have owners
        self._n_bytes_in = [0] * len(_StorePart)
        self._sketch = FrequencySketch(min(max(max_bytes // _USUAL_BYTES, _LEAST_COUNTS), _MOST_COUNTS))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[tuple[K, V]]:
        """All keys and values, those that leave first at the front."""
        for part in (_StorePart.PROBATION, _StorePart.WINDOW, _StorePart.PROTECTED):
            for key in self._queues[part]:
                yield key, self._entries[key].value

    def all_keys(self) -> KeysView[K]:
        """All keys, in the order in which their values were put in."""
        return self._entries.keys()

    def get(self, key: K) -> V | None:
        """A value. It does not count as asked for."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def ask(self, content_hash: int) -> None:
        """Count that this was asked for, whether or not it is here."""
        self._sketch.add(content_hash)

    def use(self, key: K) -> None:
        """This value was found."""
        entry = self._entries[key]
        self._owned.use(key)
        if entry.part is not _StorePart.PROBATION:
            self._queues[entry.part].move_to_end(key)
            return
        self._move(key, _StorePart.PROTECTED)
        limit = _PROTECTED_SHARE * (1.0 - _WINDOW_SHARE) * self.max_bytes
        while self._n_bytes_in[_StorePart.PROTECTED] > limit and len(self._queues[_StorePart.PROTECTED]) > 1:
            self._move(next(iter(self._queues[_StorePart.PROTECTED])), _StorePart.PROBATION)

    def put(self, key: K, value: V, n_bytes: int, content_hash: int, owner: bytes = b"") -> list[tuple[K, V]]:
        """Take in a value of at most `max_bytes`, in place of one that has its key. Returns what had to leave, which may be the
        value itself. owner: whose part it takes of; b"": nobody's."""
        if key in self._entries:
            self.pop(key)
        self._entries[key] = _StoredValue(value, n_bytes, content_hash)
        self._queues[_StorePart.WINDOW][key] = None
        self._n_bytes_in[_StorePart.WINDOW] += n_bytes
        self.n_bytes += n_bytes
        if owner:
            self._owned.add(key, owner, n_bytes)
        left = []
        while self.n_bytes > self.max_bytes:
            if (loser := self._owned.next_above()) is not None:
                self.n_share_evicted += 1
            else:
                loser = self._choose()
            left.append((loser, self.pop(loser)))
        while self._is_window_full() and len(self._queues[_StorePart.WINDOW]) > 1:
            self._move(next(iter(self._queues[_StorePart.WINDOW])), _StorePart.PROBATION)
        return left

    def pop(self, key: K) -> V:
        """Remove a value that is here."""
        entry = self._entries.pop(key)
        self._owned.remove(key)
        del self._queues[entry.part][key]
        self._n_bytes_in[entry.part] -= entry.n_bytes
        self.n_bytes -= entry.n_bytes
        return entry.value

    def _choose(self) -> K:
        """The key that leaves next."""
        window, probation, protected = self._queues
        firsts = [next(iter(part)) for part in (probation, protected) if part]
        if not firsts:
            return next(iter(window))
        # of the protected part too: what was asked for often long ago would stay there for ever
        victim = min(firsts, key=self._frequency)
        if not window or not self._is_window_full():
            return victim
        candidate = next(iter(window))
        if self._frequency(candidate) < self._frequency(victim):
            return candidate
        self._move(candidate, _StorePart.PROBATION)
        return victim

    def _is_window_full(self) -> bool:
        return self._n_bytes_in[_StorePart.WINDOW] > _WINDOW_SHARE * self.max_bytes

    def _move(self, key: K, part: _StorePart) -> None:
        """Make it the last one of another part."""
        entry = self._entries[key]
        del self._queues[entry.part][key]
        self._n_bytes_in[entry.part] -= entry.n_bytes
        entry.part = part
        self._queues[part][key] = None
        self._n_bytes_in[part] += entry.n_bytes

    def _frequency(self, key: K) -> int:
        return self._sketch.estimate(self._entries[key].content_hash)
