"""Keys of kept answers by age, so that the oldest one is known and old ones are dropped without a look at the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

_MOST_DROPPED = 1000  # at a time: 2 us each for equal requests

K = TypeVar("K", int, bytes)


class AgeQueue(Generic[K]):
    """`since_s_of`: Unix time from which the answer of a key is; None if there is none any more. Keys whose answer has left, or
    was replaced, are passed over."""

    def __init__(self, since_s_of: Callable[[K], float | None]) -> None:
        self._since_s_of = since_s_of
        self._heap: list[tuple[float, K]] = []

    def add(self, key: K, since_s: float, kept: Iterable[K], n_kept: int) -> None:
        """An answer is kept. `kept`: the keys of all that are, `n_kept` in number; they are read now and then."""
        heappush(self._heap, (since_s, key))
        if len(self._heap) > 2 * n_kept + _MOST_DROPPED:
            self._heap = [(since, one) for one in kept if (since := self._since_s_of(one)) is not None]
            heapify(self._heap)

    def oldest_s(self) -> float:
        """Unix time from which the oldest answer is; 0 without any."""
        while self._heap and self._since_s_of(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else 0.0

    def drop_until(self, last_s: float, drop: Callable[[K], None], most: int = _MOST_DROPPED) -> None:
        """Drop the answers that are from `last_s` or before, at most so many at a time: the caller has other things to do."""
        while most and 0.0 < self.oldest_s() <= last_s:
            drop(heappop(self._heap)[1])
            most -= 1
