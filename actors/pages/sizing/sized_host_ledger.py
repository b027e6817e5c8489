"""A host tier that uses as many of its places as the load needs; the memory of the others is with the system. Pure.

free -> returned (`shrink`) -> free (inside `store` and `reserve`). A place is used again without a message: a rank takes
memory for it when it stores there. A rank that gets none says so, and then the place is returned again (`refused`), nothing
more is taken for a while, and the content counts as evicted.

The tier grows by a place for each content that it has overwritten and that a prompt wants: a larger tier would have had it.
Contents that loads bring back are needed (`WorkingSet`); a content that nobody asks for in two windows of time is not. It
shrinks to what is needed, a part at a time. As soon as it grows it shrinks no further before the end of the next window.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable

from actors.pages.eviction.ghosts import Ghosts
from actors.pages.host_ledger import Content, HostLedger
from actors.pages.seal_table import SealTable
from actors.pages.sizing.working_set import SizingRule, WorkingSet

_FEWEST_TOGETHER, _PARTS = 64, 64  # places that are given back at once: ranks must not stop for long
_SHORT_S = 10.0  # without memory, until it is asked for again
_SAID_S = 600.0  # in which a shortage is said once


class SizedHostLedger(HostLedger):
    """`now_s`: the monotonic clock. All places are in use until `begin`."""

    def __init__(self, table: SealTable, rule: SizingRule, now_s: Callable[[], float] = lambda: time.monotonic()) -> None:
        super().__init__(table, now_s)
        self._needs, self._lost = WorkingSet(rule, now_s), Ghosts(self.n_places)
        self._n_regretted = 0  # hits of `_lost` that have been answered by a place, or are too old
        self._returned: list[int] = []  # the first to be used again at the end
        self._refused: list[int] = []  # returned places that some ranks may have taken memory for
        self._n_least = self._n_wanted = self.n_places  # `shrink` works towards `_n_wanted`
        self._most_together = max(self.n_places // _PARTS, _FEWEST_TOGETHER)
        self._short_until_s = self._said_s = -math.inf

    @property
    def n_in_use(self) -> int:
        return self.n_places - len(self._returned)

    @property
    def returned(self) -> list[int]:
        """All returned places. Told again to ranks that begin: those before may have died before they heard of it."""
        return list(self._returned)

    def begin(self, n_least: int, is_new: bool) -> None:
        """An epoch begins. n_least: places in use at the least; 0: all, always. A new ledger begins with these and those whose
        content it has adopted."""
        self._n_least = min(n_least or self.n_places, self.n_places)
        while is_new and self.n_in_use > self._n_least and (place := super()._take_free()) is not None:
            self._returned.append(place)

    def missed(self, contents: Iterable[Content]) -> None:
        """A prompt wants these contents. Those that were here lately would be in a larger tier."""
        if self._lost.hashes:
            for content_hash, _, _ in contents:
                if content_hash not in self._entries:
                    self._lost.computed(content_hash)

    def unpin(self, contents: list[Content]) -> None:
        super().unpin(contents)
        self._needs.reused([content_hash for content_hash, _, _ in contents])

    def shrink(self) -> list[int]:
        """Places whose memory the ranks shall give back now; [] if there are none. To be called about once a second. May evict
        contents, to whose places nothing may be copied any more."""
        size = self._needs.size(len(self._n_pins))
        if size is not None:
            self._n_wanted, self._n_regretted = size, self._lost.hits
        n_places = min(self.n_in_use - max(self._n_wanted, self._n_least), self._most_together)
        places, self._refused = self._refused, []
        while n_places > 0 and (place := self._take_unneeded()) is not None:
            places.append(place)
            self._returned.append(place)
            n_places -= 1
        return places

    def refused(self, places: list[int]) -> list[int]:
        """A rank has no memory for these places: what was to be stored there is not. They are returned again, and the tier does
        not grow for a while. Returns those at which nothing may be stored any more."""
        gone: list[int] = []
        for place in places:
            content_hash = self._table.content(place)[0]
            if self._entries.get(content_hash) == place and content_hash not in self._n_pins:
                gone.append(self._drop(content_hash))
        self._returned += gone
        self._refused += gone
        self._short_until_s = self._now_s() + _SHORT_S
        return gone

    def note_short(self) -> bool:
        """Memory is short. Returns True if that is to be said, because it was not said lately."""
        if is_due := self._now_s() >= self._said_s + _SAID_S:
            self._said_s = self._now_s()
        return is_due

    def clear(self) -> None:
        super().clear()
        self._is_free[self._returned] = False
        self._free = deque(place for place in self._free if self._is_free[place])

    def _take_free(self) -> int | None:
        place = super()._take_free()
        return self._take_returned() if place is None and self._returned else place

    def _take_returned(self) -> int | None:
        """A place that was returned, if the tier is to grow."""
        is_regretted = self._lost.hits > self._n_regretted
        if not (is_regretted or len(self._entries) <= len(self._n_pins)) or self._now_s() < self._short_until_s:
            return None
        self._n_regretted += is_regretted
        self._n_wanted = self.n_places
        place = self._returned.pop()
        if place in self._refused:
            self._refused.remove(place)
        return place

    def _take_unneeded(self) -> int | None:
        """A free place, or that of the content that goes next; None: loads read all."""
        if (place := super()._take_free()) is not None:
            return place
        content_hash = next((known for known in self._entries if known not in self._n_pins), None)
        if content_hash is None:
            return None
        self._lost.evicted(content_hash)
        return self._drop(content_hash)

    def _drop(self, content_hash: int) -> int:
        """Forget a content. Returns its place, which is not free."""
        place = self._entries.pop(content_hash)
        self._table.erase(place)
        self._left(content_hash)
        return place

    def _evict(self, new: Content) -> int | None:
        place = super()._evict(new)
        if place is not None:
            self._lost.evicted(self._table.content(place)[0])
        return place
