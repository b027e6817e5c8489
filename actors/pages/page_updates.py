"""A scheduler's updates for the cache directory: numbered messages about pages sealed and pages overwritten. Pure."""

from __future__ import annotations

from actors.pages.page_ledger import PageLedger
from messages.caches.prefixes import PagesDropped, PagesSealed
from messages.wire.arrays import uint64s


class PageUpdates:
    """Makes and numbers the updates of one scheduler. The directory notices a lost one by the gap in the numbers."""

    def __init__(self) -> None:
        self._number = 0

    def snapshot(self, ledger: PageLedger | None) -> PagesSealed:
        """A snapshot of every page that can be reused now (`ledger` None: of none). Unsent changes are included."""
        hashes = ledger.inventory() if ledger is not None else []
        if ledger is not None:
            ledger.take_changes()
        return PagesSealed(number=self._next(), hashes=uint64s(hashes), snapshot=True)

    def changes(self, ledger: PageLedger) -> list[PagesDropped | PagesSealed]:
        """Updates with the changes since the last call, in the order in which they must be sent. Each one not sent is a gap."""
        sealed, dropped = ledger.take_changes()
        messages: list[PagesDropped | PagesSealed] = []
        if dropped:
            messages.append(PagesDropped(number=self._next(), hashes=uint64s(dropped)))
        if sealed:
            messages.append(PagesSealed(number=self._next(), hashes=uint64s(sealed)))
        return messages

    def _next(self) -> int:
        self._number += 1
        return self._number
