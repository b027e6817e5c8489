"""A scheduler's updates for the cache directory: numbered messages about pages sealed and pages overwritten. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable

from actors.pages.page_ledger import PageLedger
from messages.caches.prefixes import PagesDropped, PagesSealed
from messages.wire.arrays import uint64s


class PageUpdates:
    """Makes and numbers the updates of one scheduler. The directory notices a lost one by the gap in the numbers. `now_s`: the
    monotonic clock; each update tells when it was made, which is when it is sent."""

    def __init__(self, now_s: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._number, self._now_s = 0, now_s

    def snapshot(self, ledger: PageLedger | None) -> PagesSealed:
        """A snapshot of every page that can be reused now (`ledger` None: of none). Unsent changes are included."""
        hashes = ledger.inventory() if ledger is not None else []
        if ledger is not None:
            ledger.take_changes()
        return PagesSealed(number=self._next(), hashes=uint64s(hashes), snapshot=True, sent_s=self._now_s())

    def changes(self, ledger: PageLedger) -> list[PagesDropped | PagesSealed]:
        """Updates with the changes since the last call, in the order in which they must be sent. Each one not sent is a gap."""
        sealed, dropped = ledger.take_changes()
        messages: list[PagesDropped | PagesSealed] = []
        if dropped:
            messages.append(PagesDropped(number=self._next(), hashes=uint64s(dropped), sent_s=self._now_s()))
        if sealed:
            messages.append(PagesSealed(number=self._next(), hashes=uint64s(sealed), sent_s=self._now_s()))
        return messages

    def _next(self) -> int:
        self._number += 1
        return self._number
