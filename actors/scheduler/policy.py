"""The policies of one scheduler, by the names that its settings use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.pages.eviction import EvictionPolicy, LruEviction

_EVICTION: Mapping[str, Callable[[], EvictionPolicy]] = {"lru": LruEviction}


def make_eviction(name: str) -> EvictionPolicy:
    """A new eviction policy for one page ledger. `name`: as in `SchedulerSettings.eviction`. Raises: KeyError."""
    return _EVICTION[name]()
