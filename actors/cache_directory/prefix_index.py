"""Which scheduler holds which page hashes, and which schedulers must be asked for a snapshot. Pure: the caller passes the time.

Page hashes are chained: hash i of a prompt stands for the content of its first i + 1 pages. So a scheduler holds the prefix up
to the first hash of the chain that it lacks. A look-up takes time in proportion to the length found; a page takes one entry
of a set.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

_HASH_BYTES = sys.getsizeof(1 << 63)
_TIER_WORTH = 0.75  # of a page in a host tier, beside one on the device: it is not computed, but has to come back


@dataclass
class _Holdings:
    hashes: set[int] = field(default_factory=set)
    in_tier: set[int] = field(default_factory=set)
    next_number: int = 0  # the number that the next update must have


class PrefixIndex:
    """Page hashes by scheduler, kept up to date by numbered updates.

    At most `max_hashes` hashes are kept over all schedulers; more are ignored, which costs cache hits.
    """

    def __init__(self, max_hashes: int) -> None:
        self._max_hashes = max_hashes
        self._by_scheduler: dict[str, _Holdings] = {}

    def __len__(self) -> int:
        return sum(len(holdings.hashes) + len(holdings.in_tier) for holdings in self._by_scheduler.values())

    @property
    def n_bytes(self) -> int:
        """Memory of the hashes, estimated: the tables of the sets, and a number for each hash."""
        sets = [hashes for one in self._by_scheduler.values() for hashes in (one.hashes, one.in_tier)]
        return sum(sys.getsizeof(hashes) + len(hashes) * _HASH_BYTES for hashes in sets)

    def replace(self, scheduler: str, number: int, hashes: list[int]) -> None:
        """Apply a snapshot: the scheduler holds these hashes and no others, and none in its host tier."""
        self._by_scheduler[scheduler] = _Holdings(next_number=number + 1)
        self._by_scheduler[scheduler].hashes.update(hashes[: self._n_free()])

    def update(self, scheduler: str, number: int, sealed: list[int], dropped: list[int], *, in_tier: bool = False) -> bool:
        """Apply a numbered update, of its host tier if `in_tier`. False: an earlier one was lost, nothing was applied, and a
        snapshot is needed."""
        holdings = self._by_scheduler.get(scheduler)
        if holdings is None or number != holdings.next_number:
            return False
        holdings.next_number = number + 1
        hashes = holdings.in_tier if in_tier else holdings.hashes
        hashes.difference_update(dropped)
        hashes.update(sealed[: self._n_free()])
        return True

    def remove_scheduler(self, scheduler: str) -> None:
        """Remove a scheduler that has died."""
        self._by_scheduler.pop(scheduler, None)

    def match(self, hashes: list[int]) -> dict[str, int]:
        """The number of leading pages of this chain that each scheduler holds; schedulers that hold none are left out. A page
        that is in a host tier alone counts as `_TIER_WORTH`."""
        found = {}
        for scheduler, holdings in self._by_scheduler.items():
            on_device, in_tier = holdings.hashes, holdings.in_tier
            length = n_in_tier = 0
            while length < len(hashes) and (hashes[length] in on_device or hashes[length] in in_tier):
                n_in_tier += hashes[length] not in on_device
                length += 1
            if worth := length - n_in_tier + int(n_in_tier * _TIER_WORTH):
                found[scheduler] = worth
        return found

    def _n_free(self) -> int:
        return max(0, self._max_hashes - len(self))


@dataclass
class SnapshotRequests:
    """The schedulers whose snapshot is missing, and when to ask them again.

    A request or its answer may be lost, because a full link drops them. So a request that is not answered within `patience_s`
    is repeated as long as the scheduler lives; otherwise one lost message would hide its prefixes for ever.
    """

    patience_s: float
    _asked_s: dict[str, float | None] = field(default_factory=dict)  # scheduler -> time of the last request; None: none yet

    def want(self, scheduler: str) -> bool:
        """Note that a snapshot of this scheduler is needed. Returns False if that was known already."""
        if scheduler in self._asked_s:
            return False
        self._asked_s[scheduler] = None
        return True

    def settle(self, scheduler: str) -> None:
        """The snapshot has come, or the scheduler has died."""
        self._asked_s.pop(scheduler, None)

    def take_due(self, now_s: float) -> list[str]:
        """The schedulers to ask now. They are due again after `patience_s`."""
        due = [name for name, at_s in self._asked_s.items() if at_s is None or now_s - at_s >= self.patience_s]
        self._asked_s.update(dict.fromkeys(due, now_s))
        return due
