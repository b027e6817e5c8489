"""The size of the host tier, where it follows the load: what the ranks are told of it, and what they say. Pure."""

from __future__ import annotations

from actors.pages.sizing.sized_host_ledger import SizedHostLedger
from actors.scheduler.planning.pending_stores import PendingStores
from actors.scheduler.planning.tiers.host_contents import HostContents


class HostSizing:
    """`contents`: of the host tier, whose ledger decides; `stores`: to its places, of which the ranks do not know yet."""

    def __init__(self, contents: HostContents, stores: PendingStores) -> None:
        self._contents, self._stores = contents, stores

    @property
    def _ledger(self) -> SizedHostLedger | None:
        return ledger if isinstance(ledger := self._contents.ledger, SizedHostLedger) else None

    @property
    def returned(self) -> list[int]:
        """All places whose memory no rank needs."""
        return [] if self._ledger is None else self._ledger.returned

    def give_back(self) -> list[int]:
        """Places whose memory the ranks shall give back now. To be called about once a second."""
        if self._ledger is None:
            return []
        places = self._ledger.shrink()
        self._stores.take_of([], places)  # what the ranks have not been told to store is evicted now
        return places

    def lacks_memory(self, places: list[int]) -> bool:
        """A rank has no memory for these places, at which it should have stored something. Returns True if that is to be said:
        it was not so lately."""
        if self._ledger is None or not places:
            return False
        self._stores.take_of([], self._ledger.refused(places))
        return self._ledger.note_short()
