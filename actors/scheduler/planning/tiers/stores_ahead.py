"""Copies to the host tier of pages that will be evicted soon, so that an eviction need not wait for them. Pure.

An evicted page that no place has must be copied before a plan or a load overwrites it. With this, the pages that the eviction
policy would choose next have been copied while nothing else was: a few at a time, and no load waits for more than these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.host_ledger import Content, HostLedger
from actors.scheduler.planning.pending_stores import Store

_MOST_AHEAD = 1024  # pages
_LEAST_PART = 4  # one part in so many of the device's pages, and of the places, at most
_PIECE_S = 0.001  # of copies that a load may find before it
_FIRST_PAGES = 8  # of a piece, while nothing is known
_LOOK_S = 0.1  # between two looks at what will be evicted
_LIMIT_S = 5.0  # of a piece


class StoresAhead:
    """Of one gang of `n_ranks` after the other. page_s: the expected time for each page; None: not known. now_s: the monotonic
    clock."""

    def __init__(self, n_ranks: int, page_s: Callable[[], float | None], now_s: Callable[[], float]) -> None:
        self._n_ranks, self._page_s, self._now_s = n_ranks, page_s, now_s
        self._wanted: deque[Content] = deque()  # the next to be evicted first
        self._looked_s = float("-inf")
        self._number: int | None = None  # of the moves on their way
        self._sent_s = 0.0
        self._answered: set[str] = set()  # ranks

    def clear(self) -> None:
        """What is on its way will not be answered; what is wanted may be no more."""
        self._wanted.clear()
        self._number = None

    def take(self, ledger: ForgettingLedger, host: HostLedger) -> list[Store]:
        """The next copies, whose contents the host tier has from now on; [] if there are none now. `sent` follows."""
        if self._number is not None and self._now_s() - self._sent_s < _LIMIT_S:
            return []
        if not self._wanted:
            self._look(ledger, host)
        page_s, stores = self._page_s(), list[Store]()
        most = _FIRST_PAGES if page_s is None else max(1, round(_PIECE_S / max(page_s, 1e-9)))
        while self._wanted and len(stores) < most:
            content = self._wanted.popleft()
            page = ledger.cached_page(content)
            if page is not None and host.find(content) is None and (place := host.store(content)) is not None:
                stores.append(Store(page, place, content[0]))
        return stores

    def sent(self, number: int) -> None:
        """Moves with this number have what `take` has returned."""
        self._number, self._sent_s = number, self._now_s()
        self._answered.clear()

    def moved(self, rank: str, number: int) -> None:
        """A rank has done the moves with this number."""
        if number == self._number:
            self._answered.add(rank)
            if len(self._answered) == self._n_ranks:
                self._number = None

    def _look(self, ledger: ForgettingLedger, host: HostLedger) -> None:
        if self._now_s() - self._looked_s < _LOOK_S:
            return
        self._looked_s = self._now_s()
        n_pages = min(_MOST_AHEAD, ledger.n_pages // _LEAST_PART, host.n_places // _LEAST_PART)
        self._wanted.extend(content for content in ledger.evicted_next(n_pages) if not host.has_hash(content[0]))
