"""What the cache directory is told: pages that became reusable or were overwritten, numbered so that a gap shows. Pure."""

from __future__ import annotations

from actors.pages.page_ledger import PageLedger
from messages.cache import PagesDropped, PagesSealed
from messages.wire.arrays import uint64s


class PageNews:
    """Counts the messages of one scheduler to the directory; a number without a message tells it of a gap."""

    def __init__(self) -> None:
        self._number = 0

    def snapshot(self, ledger: PageLedger | None) -> PagesSealed:
        """Everything that can be reused now; news that were not told yet are part of it."""
        hashes = ledger.inventory() if ledger is not None else []
        if ledger is not None:
            ledger.take_news()
        return PagesSealed(number=self._next(), hashes=uint64s(hashes), snapshot=True)

    def changes(self, ledger: PageLedger) -> list[PagesDropped | PagesSealed]:
        """What has changed since the last call, in the order in which it has to be told."""
        sealed, dropped = ledger.take_news()
        messages: list[PagesDropped | PagesSealed] = []
        if dropped:
            messages.append(PagesDropped(number=self._next(), hashes=uint64s(dropped)))
        if sealed:
            messages.append(PagesSealed(number=self._next(), hashes=uint64s(sealed)))
        return messages

    def _next(self) -> int:
        self._number += 1
        return self._number
