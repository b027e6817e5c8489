"""Which content lies at which place of the host tier, as far as the scheduler knows. Pure.

The tier keeps pages that the device has evicted. Each rank has the same places, and there the hash and a checksum of what is
at each. So an entry here may be wrong: its load fails, and the entry is discarded.

The least recently used content is overwritten first. The ledger evicts a page after those that continue it, so these are
stored, and overwritten, before it. Places that a load reads are pinned: nothing is stored there.
"""

from __future__ import annotations

from collections import OrderedDict, deque

Content = tuple[int, int, bytes]  # hash, parent's hash, tokens


class HostLedger:
    """The contents of `n_places` places."""

    def __init__(self, n_places: int) -> None:
        self.n_places = n_places
        self._free = deque(range(n_places))
        self._entries: OrderedDict[int, tuple[int, Content]] = OrderedDict()  # by hash: place, content; the next to go first
        self._pinned: dict[int, tuple[int, Content]] = {}  # entries that are in no order while loads read them
        self._n_pins: dict[int, int] = {}  # by hash

    def __len__(self) -> int:
        """Number of contents."""
        return len(self._entries) + len(self._pinned)

    def find(self, content: Content) -> int | None:
        """The place of this content; None if it has none."""
        entry = self._entries.get(content[0]) or self._pinned.get(content[0])
        return entry[0] if entry is not None and entry[1] == content else None

    def store(self, content: Content) -> int | None:
        """Note a content that the device evicts. Returns the place to which it must be copied; None if it has one already, or
        if loads read all places."""
        content_hash = content[0]
        if content_hash in self._pinned:
            return None
        if content_hash in self._entries:
            self._entries.move_to_end(content_hash)
            if self._entries[content_hash][1] == content:
                return None
            place, _ = self._entries.pop(content_hash)  # another content of the same hash
        elif self._free:
            place = self._free.popleft()
        elif self._entries:
            _, (place, _) = self._entries.popitem(last=False)
        else:
            return None
        self._entries[content_hash] = place, content
        return place

    def reserve(self) -> int | None:
        """A place for a content that is on its way from elsewhere; None if loads read all others. `fill` or `give_back` ends
        this."""
        if self._free:
            return self._free.popleft()
        return self._entries.popitem(last=False)[1][0] if self._entries else None

    def fill(self, place: int, content: Content) -> None:
        """A reserved place has this content now. It stays empty if the content has got another place meanwhile."""
        if content[0] in self._entries or content[0] in self._pinned:
            self.give_back(place)
        else:
            self._entries[content[0]] = place, content

    def give_back(self, place: int) -> None:
        """A reserved place stays empty."""
        self._free.append(place)

    def pin(self, contents: list[Content]) -> list[int]:
        """A load reads the places of these contents, which `find` has returned. Returns the places."""
        for content_hash, _, _ in contents:
            self._n_pins[content_hash] = self._n_pins.get(content_hash, 0) + 1
            if content_hash in self._entries:
                self._pinned[content_hash] = self._entries.pop(content_hash)
        return [self._pinned[content_hash][0] for content_hash, _, _ in contents]

    def unpin(self, contents: list[Content]) -> None:
        """The load has ended. Its contents are the last to be overwritten, a page after those that continue it."""
        for content_hash, _, _ in reversed(contents):
            self._n_pins[content_hash] -= 1
            if not self._n_pins[content_hash]:
                del self._n_pins[content_hash]
                self._entries[content_hash] = self._pinned.pop(content_hash)

    def discard(self, content_hash: int) -> None:
        """This content is not at its place. Must not be called while that is pinned; does nothing for an unknown content."""
        entry = self._entries.pop(content_hash, None)
        if entry is not None:
            self._free.append(entry[0])

    def clear(self) -> None:
        """Forget all contents. Must not be called while a place is pinned."""
        assert not self._pinned, f"{len(self._pinned)} places are pinned"
        self._free = deque(range(self.n_places))
        self._entries.clear()
