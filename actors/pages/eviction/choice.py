"""The eviction policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.pages.eviction.adaptive import AdaptiveEviction
from actors.pages.eviction.fifo import FifoEviction
from actors.pages.eviction.lfu import LfuEviction
from actors.pages.eviction.lru import LruEviction
from actors.pages.eviction.policy import EvictionName, EvictionPolicy
from actors.pages.eviction.w_tinylfu import WTinyLfuEviction

# those that "adaptive" chooses from, the first one at the beginning
_SINGLE: Mapping[EvictionName, Callable[[int], EvictionPolicy]] = {
    EvictionName.LRU: lambda n_pages: LruEviction(),
    EvictionName.LFU: LfuEviction,
    EvictionName.FIFO: FifoEviction,
    EvictionName.W_TINYLFU: WTinyLfuEviction,
}


def make_eviction(name: EvictionName, n_pages: int) -> EvictionPolicy:
    """A new eviction policy, for one ledger of `n_pages` pages."""
    if name is EvictionName.ADAPTIVE:
        return AdaptiveEviction(_SINGLE, n_pages)
    return _SINGLE[name](n_pages)
