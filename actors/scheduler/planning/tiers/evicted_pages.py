"""What becomes of pages that the device evicts: they are stored in the host tier, or lie there already. Pure."""

from __future__ import annotations

from actors.pages.host_ledger import HostLedger
from actors.pages.page_ledger import EvictedPage
from actors.scheduler.planning.pending_stores import PendingStores, Store


class EvictedPages:
    """`stores`: gets what is to be stored. Most contents have places where pages are stored ahead of their eviction: that these
    are used is noted later, because a load waits for the pages."""

    def __init__(self, stores: PendingStores) -> None:
        self._stores = stores
        self._used: list[int] = []  # hashes of contents that have places

    def add(self, host: HostLedger, evicted: list[EvictedPage], can_store: bool) -> None:
        """The ledger has evicted these pages, the first one first. can_store: those that have no place may get one."""
        missing: list[EvictedPage] = []
        for page, content in evicted:
            if host.has_hash(content[0]):
                self._used.append(content[0])
            elif can_store:
                missing.append((page, content))
        if missing:
            self.note_used(host)  # before others are overwritten
        for page, content in missing:
            if (place := host.store(content)) is not None:
                self._stores.add(Store(page, place, content[0]))

    def note_used(self, host: HostLedger) -> None:
        """Tell the host tier which contents it is to overwrite last."""
        if self._used:
            host.touch(self._used)
            self._used.clear()

    def clear(self) -> None:
        """The host tier is another, or empty."""
        self._used.clear()
