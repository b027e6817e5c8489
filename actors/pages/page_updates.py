"""What a scheduler tells the cache directory: pages that became reusable or were overwritten, as numbered messages. Pure."""

from __future__ import annotations

from actors.pages.page_ledger import PageLedger
from messages.cache import PagesDropped, PagesSealed
from messages.wire.arrays import uint64s


class PageUpdates:
    """Numbers the messages of one scheduler to the directory, which notices a lost one by the gap."""

    def __init__(self) -> None:
        self._number = 0

    def snapshot(self, ledger: PageLedger | None) -> PagesSealed:
        """Every page that can be reused now; None: no page can. The changes that were not sent yet are part of it."""
        hashes = ledger.inventory() if ledger is not None else []
        if ledger is not None:
            ledger.take_changes()
        return PagesSealed(number=self._next(), hashes=uint64s(hashes), snapshot=True)

    def changes(self, ledger: PageLedger) -> list[PagesDropped | PagesSealed]:
        """The changes since the last call, in the order in which they must be sent. A change that is not sent costs a gap."""
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
