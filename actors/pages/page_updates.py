"""A scheduler's updates for the cache directory: numbered messages about pages sealed and pages overwritten, on the device and
in the host tier. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable

from actors.pages.host_ledger import HostLedger
from actors.pages.page_ledger import PageLedger
from messages.caches.prefixes import PagesDropped, PagesSealed
from messages.wire.arrays import uint64s


class PageUpdates:
    """Makes and numbers the updates of one scheduler. The directory notices a lost one by the gap in the numbers. `now_s`: the
    monotonic clock; each update tells when it was made, which is when it is sent."""

    def __init__(self, now_s: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._number, self._now_s = 0, now_s

    def snapshot(self, ledger: PageLedger | None, tier: HostLedger | None = None) -> list[PagesSealed]:
        """A snapshot of every page that can be reused now (`ledger` None: of none), and of the host tier, if there is one.
        Unsent changes are included."""
        hashes = ledger.inventory() if ledger is not None else []
        if ledger is not None:
            ledger.take_changes()
        messages = [PagesSealed(number=self._next(), hashes=uint64s(hashes), snapshot=True, sent_s=self._now_s())]
        if ledger is not None and tier is not None and tier.n_places:
            tier.take_changes()
            messages += [self._sealed(tier.inventory(), in_tier=True)] if len(tier) else []
        return messages

    def changes(self, ledger: PageLedger, tier: HostLedger | None = None) -> list[PagesDropped | PagesSealed]:
        """Updates with the changes since the last call, in the order in which they must be sent. Each one not sent is a gap."""
        messages = self._changes(*ledger.take_changes(), in_tier=False)
        return messages + self._changes(*tier.take_changes(), in_tier=True) if tier is not None and tier.n_places else messages

    def _changes(self, sealed: list[int], dropped: list[int], *, in_tier: bool) -> list[PagesDropped | PagesSealed]:
        messages: list[PagesDropped | PagesSealed] = []
        if dropped:
            hashes, now_s = uint64s(dropped), self._now_s()
            messages.append(PagesDropped(number=self._next(), hashes=hashes, sent_s=now_s, in_tier=in_tier))
        if sealed:
            messages.append(self._sealed(sealed, in_tier=in_tier))
        return messages

    def _sealed(self, hashes: list[int], *, in_tier: bool) -> PagesSealed:
        return PagesSealed(number=self._next(), hashes=uint64s(hashes), sent_s=self._now_s(), in_tier=in_tier)

    def _next(self) -> int:
        self._number += 1
        return self._number
