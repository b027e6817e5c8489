"""Which content lies at which place of the host tier, as far as the scheduler knows; and the same of the disk tier. Pure.

The tier keeps pages that the device has evicted. Each rank has the same places, and there the hash and a checksum of what is
at each. So an entry here may be wrong: its load fails, and the entry is discarded.

The least recently used content is overwritten first. The ledger evicts a page after those that continue it, so these are
stored, and overwritten, before it. Places that a load reads are pinned: nothing is stored there.

Contents are in the records of a seal table, which may outlive this scheduler. The next one adopts them; tokens are read from a
record when its page is looked up.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable

import numpy as np

from actors.pages.page_hash import depths
from actors.pages.seal_table import SealTable

Content = tuple[int, int, bytes]  # hash, parent's hash, tokens


class HostLedger:
    """The contents of places. `table`: one record for each place; the contents that it has are adopted. `n_evicted`: contents
    that others have overwritten."""

    def __init__(self, table: SealTable, now_s: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._table, self.generation, self.n_places = table, table.generation, table.n_pages
        places, hashes, parents = table.read()
        order = np.argsort(-depths(hashes, parents), kind="stable")  # which one was used last is not known; prefixes stay
        self._entries = OrderedDict(zip(hashes[order].tolist(), places[order].tolist(), strict=True))  # the next to go first
        self._is_free = np.ones(self.n_places, bool)
        is_whole = len(self._entries) == len(places)  # no damaged record says that a content is at another place too
        self._is_free[places if is_whole else list(self._entries.values())] = False
        self._free = deque(np.flatnonzero(self._is_free).tolist())  # and places that `adopt` has taken, each once more
        self._pinned: dict[int, int] = {}  # entries that are in no order while loads read them
        self._n_pins: dict[int, int] = {}  # by hash
        self._now_s, self._used_s = now_s, array("d", [now_s()]) * self.n_places  # by place
        self.n_evicted = 0
        self._added, self._removed = dict[int, None](), list[int]()  # since the last `take_changes`, in order

    def __len__(self) -> int:
        """Number of contents."""
        return len(self._entries) + len(self._pinned)

    def find(self, content: Content) -> int | None:
        """The place of this content; None if it has none."""
        place = self._entries.get(content[0])
        if place is None:
            place = self._pinned.get(content[0])
        return place if place is not None and self._table.content(place) == content else None

    def store(self, content: Content) -> int | None:
        """Note a content that the device evicts. Returns the place to which it must be copied; None if it has one already, or
        if loads read all places."""
        content_hash = content[0]
        if content_hash in self._pinned:
            return None
        if content_hash in self._entries:
            self._entries.move_to_end(content_hash)
            place = self._entries[content_hash]
            self._used_s[place] = self._now_s()
            if self._table.content(place) == content:
                return None  # otherwise the place has another content of the same hash
        elif (free := self._take_free()) is not None:
            place = free
        elif self._entries:
            place = self._evict()
        else:
            return None
        self._table.erase(place)
        self._table.record(place, *content)
        self._enter(content_hash, place)
        self._added[content_hash] = None
        return place

    def reserve(self) -> int | None:
        """A place for a content that is on its way from elsewhere; None if loads read all others. `fill` or `give_back` ends
        this."""
        if (free := self._take_free()) is not None or not self._entries:
            return free
        place = self._evict()
        self._table.erase(place)
        return place

    def fill(self, place: int, content: Content) -> None:
        """A reserved place has this content now. It stays empty if the content has got another place meanwhile."""
        if content[0] in self._entries or content[0] in self._pinned:
            self.give_back(place)
        else:
            self._table.record(place, *content)
            self._enter(content[0], place)
            self._added[content[0]] = None

    def give_back(self, place: int) -> None:
        """A reserved place stays empty."""
        self._free_place(place)

    def pin(self, contents: list[Content]) -> list[int]:
        """A load reads the places of these contents, which `find` has returned. Returns the places."""
        for content_hash, _, _ in contents:
            self._n_pins[content_hash] = self._n_pins.get(content_hash, 0) + 1
            if content_hash in self._entries:
                self._pinned[content_hash] = self._entries.pop(content_hash)
        return [self._pinned[content_hash] for content_hash, _, _ in contents]

    def unpin(self, contents: list[Content]) -> None:
        """The load has ended. Its contents are the last to be overwritten, a page after those that continue it."""
        for content_hash, _, _ in reversed(contents):
            self._n_pins[content_hash] -= 1
            if not self._n_pins[content_hash]:
                del self._n_pins[content_hash]
                self._enter(content_hash, self._pinned.pop(content_hash))

    def discard(self, content_hash: int) -> None:
        """This content is not at its place. Must not be called while that is pinned; does nothing for an unknown content."""
        place = self._entries.pop(content_hash, None)
        if place is not None:
            self._table.erase(place)
            self._free_place(place)
            self._note_removed(content_hash)

    def adopt(self, place: int, content: Content) -> bool:
        """A place that is free here has this content, from an earlier scheduler: it is the next to be overwritten. Returns
        False if the place is not free, or if the content is at another one."""
        if not self._is_free[place] or content[0] in self._entries or content[0] in self._pinned:
            return False
        self._is_free[place] = False
        self._table.record(place, *content)
        self._entries[content[0]] = place
        self._entries.move_to_end(content[0], last=False)
        self._added[content[0]] = None
        return True

    def clear(self) -> None:
        """Forget all contents. Must not be called while a place is pinned."""
        assert not self._pinned, f"{len(self._pinned)} places are pinned"
        self._table.clear()
        for content_hash in self._entries:
            self._note_removed(content_hash)
        self._free = deque(range(self.n_places))
        self._is_free[:] = True
        self._entries.clear()

    def inventory(self) -> list[int]:
        """The hashes of all contents."""
        return [*self._entries, *self._pinned]

    def take_changes(self) -> tuple[list[int], list[int]]:
        """(hashes added, hashes removed) since the last call. A receiver must remove the removed ones first."""
        changes = list(self._added), self._removed
        self._added, self._removed = {}, []
        return changes

    def unused_s(self) -> float:
        """For how long the content that goes next was not used; 0 without any. That of an adopted one counts from then on."""
        place = next(iter(self._entries.values()), None)
        return 0.0 if place is None else self._now_s() - self._used_s[place]

    def _enter(self, content_hash: int, place: int) -> None:
        """Make a content the last one to go."""
        self._entries[content_hash] = place
        self._used_s[place] = self._now_s()

    def _evict(self) -> int:
        """The place of the content that goes next, which is in no order any more."""
        self.n_evicted += 1
        content_hash, place = self._entries.popitem(last=False)
        self._note_removed(content_hash)
        return place

    def _note_removed(self, content_hash: int) -> None:
        if self._added.pop(content_hash, 0) == 0:  # it was there before the last `take_changes`
            self._removed.append(content_hash)

    def _take_free(self) -> int | None:
        while self._free:
            place = self._free.popleft()
            if self._is_free[place]:
                self._is_free[place] = False
                return place
        return None

    def _free_place(self, place: int) -> None:
        self._is_free[place] = True
        self._free.append(place)
