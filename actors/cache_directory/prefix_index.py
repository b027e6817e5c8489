"""Which replica holds which page hashes, and the longest prefix of a chain that each of them holds.

Page hashes are chained, so holding hash i of a request means holding exactly its first i + 1 pages' content; a replica holds a
prefix as far as it holds every hash from the first. Look-up is O(length of the answer), memory one set entry per page.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class _Holdings:
    hashes: set[int] = field(default_factory=set)
    next_number: int = 0  # 0: nothing heard yet, only a snapshot makes sense


class PrefixIndex:
    """Holdings by scheduler, kept in step by numbered updates. Pure."""

    def __init__(self, max_hashes: int) -> None:
        self._max_hashes = max_hashes
        self._by_scheduler: dict[str, _Holdings] = {}

    def __len__(self) -> int:
        return sum(len(holdings.hashes) for holdings in self._by_scheduler.values())

    def replace(self, scheduler: str, number: int, hashes: list[int]) -> None:
        """A snapshot: this is all that the scheduler holds."""
        self._by_scheduler[scheduler] = _Holdings(set(), number + 1)
        self._by_scheduler[scheduler].hashes.update(hashes[: self._room()])

    def update(self, scheduler: str, number: int, sealed: list[int], dropped: list[int]) -> bool:
        """Apply a numbered update; False when one was missed and a snapshot is needed."""
        holdings = self._by_scheduler.get(scheduler)
        if holdings is None or number != holdings.next_number:
            return False
        holdings.next_number = number + 1
        holdings.hashes.difference_update(dropped)
        holdings.hashes.update(sealed[: self._room()])
        return True

    def forget(self, scheduler: str) -> None:
        """This scheduler is dead; what it held is gone."""
        self._by_scheduler.pop(scheduler, None)

    def find(self, hashes: list[int]) -> dict[str, int]:
        """Leading pages of this chain that each scheduler holds; schedulers that hold none are left out."""
        found = {}
        for scheduler, holdings in self._by_scheduler.items():
            length = 0
            while length < len(hashes) and hashes[length] in holdings.hashes:
                length += 1
            if length:
                found[scheduler] = length
        return found

    def _room(self) -> int:
        return max(0, self._max_hashes - len(self))
