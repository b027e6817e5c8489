"""The eviction policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from actors.pages.eviction.adaptive import AdaptiveEviction
from actors.pages.eviction.fifo import FifoEviction
from actors.pages.eviction.lfu import LfuEviction
from actors.pages.eviction.lru import LruEviction
from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.eviction.w_tinylfu import WTinyLfuEviction


class EvictionName(Enum):
    """The values of `scheduler.eviction`."""

    LRU = "lru"
    LFU = "lfu"
    FIFO = "fifo"
    W_TINYLFU = "w-tinylfu"
    ADAPTIVE = "adaptive"


# those that "adaptive" chooses from, the first one at the beginning
_SINGLE: Mapping[EvictionName, Callable[[int], EvictionPolicy]] = {
    EvictionName.LRU: LruEviction,
    EvictionName.LFU: LfuEviction,
    EvictionName.FIFO: FifoEviction,
    EvictionName.W_TINYLFU: WTinyLfuEviction,
}


def make_eviction(name: EvictionName, n_pages: int) -> EvictionPolicy:
    """A new eviction policy, for one ledger of `n_pages` pages."""
    if name is EvictionName.ADAPTIVE:
        return AdaptiveEviction({name.value: make for name, make in _SINGLE.items()}, n_pages)
    return _SINGLE[name](n_pages)
