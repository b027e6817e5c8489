"""Which content lies at which place of the host tier, as far as the scheduler knows; and the same of the disk tier. Pure.

The tier keeps pages that the device has evicted. Each rank has the same places, and there the hash and a checksum of what is
at each. So an entry here may be wrong: its load fails, and the entry is discarded.

The least recently used content is overwritten first. The ledger evicts a page after those that continue it, so these are
stored, and overwritten, before it. Places that a load reads are pinned: nothing is stored there.

Where callers have parts of the places (`bound`), one that has more than its part loses its own contents first, and one that has
all of it overwrites its own.

Contents are in the records of a seal table, which may outlive this scheduler. The next one adopts them; tokens are read from a
record when its page is looked up.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

import numpy as np

from actors.pages.eviction.place_shares import PlaceShares, ScopeBounds
from actors.pages.page_hash import depths
from actors.pages.seal_table import SealTable

Content = tuple[int, int, bytes]  # hash, parent's hash, tokens


class HostLedger:
    """The contents of places. `table`: one record for each place; the contents that it has are adopted. `n_evicted`: contents
    that others have overwritten; `n_share_evicted`: those of them that left because of a bound of their caller."""

    def __init__(self, table: SealTable, now_s: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._table, self.generation, self.n_places = table, table.generation, table.n_pages
        places, hashes, parents = table.read()
        order = np.argsort(-depths(hashes, parents), kind="stable")  # which one was used last is not known; prefixes stay
        self._entries = OrderedDict(zip(hashes[order].tolist(), places[order].tolist(), strict=True))  # the next to go first
        self._is_free = np.ones(self.n_places, bool)
        is_whole = len(self._entries) == len(places)  # no damaged record says that a content is at another place too
        self._is_free[places if is_whole else list(self._entries.values())] = False
        self._free = deque(np.flatnonzero(self._is_free).tolist())  # and places that `adopt` has taken, each once more
        self._n_pins: dict[int, int] = {}  # by hash: loads that read an entry, which is passed over meanwhile
        self._now_s, self._used_s = now_s, array("d", [now_s()]) * self.n_places  # by place
        self.n_evicted = self.n_share_evicted = 0
        self._shares: PlaceShares | None = None  # None: callers have no bounds
        self._added, self._removed = dict[int, None](), list[int]()  # since the last `take_changes`, in order

    def __len__(self) -> int:
        """Number of contents."""
        return len(self._entries)

    @property
    def n_in_use(self) -> int:
        """Places that have memory; all of them, unless their number follows the load."""
        return self.n_places

    def bound(self, bounds: ScopeBounds) -> None:
        """From now on callers that have more than their part lose theirs first. Takes 5 µs for each content the first time."""
        if self._shares is not None:
            return
        self._shares = PlaceShares(self.n_places, bounds)
        for content_hash, place in self._entries.items():
            self._shares.enter(content_hash, self._table.content(place)[1])

    def root_noted(self, root: int) -> None:
        """The scope of this root is known."""
        if self._shares is not None:
            self._shares.root_noted(root)

    def scope_of(self, content_hash: int) -> bytes:
        """The scope of a content that has a place; b"" if it is not known."""
        return b"" if self._shares is None else self._shares.scope_of(content_hash)

    def find(self, content: Content) -> int | None:
        """The place of this content; None if it has none."""
        place = self._entries.get(content[0])
        return place if place is not None and self._table.content(place) == content else None

    def first_of(self, contents: Iterable[Content], is_other: Callable[[int], bool]) -> tuple[list[Content], list[int]]:
        """The first of these contents that have places, up to one that has none or for whose hash `is_other` is True; and their
        places. As `find` for each, in less time."""
        entries, found, places = self._entries, list[Content](), list[int]()
        for content in contents:
            place = entries.get(content[0])
            if place is None or is_other(content[0]):
                break
            found.append(content)
            places.append(place)
        n = self._table.n_equal(places, found)
        return found[:n], places[:n]

    def has_hash(self, content_hash: int) -> bool:
        """True if a content with this hash has a place."""
        return content_hash in self._entries

    def store(self, content: Content) -> int | None:
        """Note a content that the device evicts. Returns the place to which it must be copied; None if it has one already, if
        loads read all places, or if its caller may have no more."""
        content_hash = content[0]
        if content_hash in self._n_pins:
            return None
        if (known := self._entries.get(content_hash)) is not None:
            self.touch([content_hash])
            if self._table.content(known) == content:
                return None
            place = known  # which has another content of the same hash
        elif (free := self._take_free()) is not None:
            place = free
        elif (evicted := self._evict(content)) is not None:
            place = evicted
        else:
            return None
        self._table.erase(place)
        self._table.record(place, *content)
        self._enter(content, place)
        self._added[content_hash] = None
        return place

    def reserve(self, content: Content) -> int | None:
        """A place for this content, which is on its way from elsewhere; None if loads read all others, or its caller may have
        no more. `fill` or `give_back` ends this."""
        if (place := self._take_free()) is None:
            if (place := self._evict(content)) is None:
                return None
            self._table.erase(place)
        if self._shares is not None:
            self._shares.reserved(place, content[0], content[1])
        return place

    def fill(self, place: int, content: Content) -> None:
        """A reserved place has this content now. It stays empty if the content has got another place meanwhile."""
        if content[0] in self._entries:
            self.give_back(place)
        else:
            self._given(place)
            self._table.record(place, *content)
            self._enter(content, place)
            self._added[content[0]] = None

    def give_back(self, place: int) -> None:
        """A reserved place stays empty."""
        self._given(place)
        self._free_place(place)

    def pin(self, contents: list[Content]) -> list[int]:
        """A load reads the places of these contents, which `find` has returned. Returns the places."""
        n_pins, entries = self._n_pins, self._entries
        for content_hash, _, _ in contents:
            n_pins[content_hash] = n_pins.get(content_hash, 0) + 1
        return [entries[content_hash] for content_hash, _, _ in contents]

    def unpin(self, contents: list[Content]) -> None:
        """The load has ended. Its contents are the last to be overwritten, a page after those that continue it."""
        hashes = [content_hash for content_hash, _, _ in reversed(contents)]
        for content_hash in hashes:
            n_left = self._n_pins[content_hash] - 1
            if n_left:
                self._n_pins[content_hash] = n_left
            else:
                del self._n_pins[content_hash]
        self.touch(hashes)

    def touch(self, hashes: list[int]) -> None:
        """Contents with these hashes, the known ones of them, are used: they are the last to be overwritten, in this order."""
        entries, used_s, now_s, shares = self._entries, self._used_s, self._now_s(), self._shares
        for content_hash in hashes:
            if (place := entries.get(content_hash)) is not None:
                entries.move_to_end(content_hash)
                used_s[place] = now_s
                if shares is not None:
                    shares.use(content_hash)

    def discard(self, content_hash: int) -> None:
        """This content is not at its place. Must not be called while that is pinned; does nothing for an unknown content."""
        place = self._entries.pop(content_hash, None)
        if place is not None:
            self._table.erase(place)
            self._free_place(place)
            self._left(content_hash)

    def adopt(self, place: int, content: Content) -> bool:
        """A place that is free here has this content, from an earlier scheduler: it is the next to be overwritten. Returns
        False if the place is not free, or if the content is at another one."""
        if not self._is_free[place] or content[0] in self._entries:
            return False
        self._is_free[place] = False
        self._table.record(place, *content)
        self._entries[content[0]] = place
        self._entries.move_to_end(content[0], last=False)
        if self._shares is not None:
            self._shares.enter(content[0], content[1], is_next=True)
        self._added[content[0]] = None
        return True

    def clear(self) -> None:
        """Forget all contents. Must not be called while a place is pinned."""
        assert not self._n_pins, f"{len(self._n_pins)} places are pinned"
        self._table.clear()
        for content_hash in self._entries:
            self._left(content_hash)
        self._free = deque(range(self.n_places))
        self._is_free[:] = True
        self._entries.clear()

    def inventory(self) -> list[int]:
        """The hashes of all contents."""
        return list(self._entries)

    def take_changes(self) -> tuple[list[int], list[int]]:
        """(hashes added, hashes removed) since the last call. A receiver must remove the removed ones first."""
        changes = list(self._added), self._removed
        self._added, self._removed = {}, []
        return changes

    def unused_s(self) -> float:
        """For how long the content that goes next was not used; 0 without any. That of an adopted one counts from then on."""
        place = next((place for content_hash, place in self._entries.items() if content_hash not in self._n_pins), None)
        return 0.0 if place is None else self._now_s() - self._used_s[place]

    def _enter(self, content: Content, place: int) -> None:
        """Make a content the last one to go. One with the same hash may have been at this place."""
        is_known = content[0] in self._entries
        self._entries[content[0]] = place
        self._used_s[place] = self._now_s()
        if self._shares is not None and not is_known:
            self._shares.enter(content[0], content[1])

    def _evict(self, new: Content) -> int | None:
        """The place of the content that goes next, which is in no order any more; None if loads read all. One that a load reads
        becomes the last one, as it will again when the load ends. new: the content for which there is no room."""
        if len(self._entries) <= len(self._n_pins):
            return None
        content_hash = None
        if self._shares is not None:
            content_hash, is_refused = self._shares.leaves_next(new[0], new[1], self._n_pins)
            if is_refused:
                return None
            self.n_share_evicted += content_hash is not None
        if content_hash is None:
            content_hash = next(iter(self._entries))
            while content_hash in self._n_pins:
                self._entries.move_to_end(content_hash)
                content_hash = next(iter(self._entries))
        self.n_evicted += 1
        self._left(content_hash)
        return self._entries.pop(content_hash)

    def _given(self, place: int) -> None:
        """A reserved place gets its content, or is free."""
        if self._shares is not None:
            self._shares.given(place)

    def _left(self, content_hash: int) -> None:
        """A content has no place any more."""
        if self._shares is not None:
            self._shares.leave(content_hash)
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
