"""Contents that were evicted a short time ago: one that is computed again would have been a hit in a larger cache."""

from __future__ import annotations

from collections import OrderedDict

_FULL_COUNT = 4096  # pages; a larger ledger is sampled
_SAMPLING = 8


class Ghosts:
    """The hashes of the last contents that were evicted, as many as the ledger has pages.

    A large ledger remembers one content in eight, chosen by its hash, and counts eight for each ("spatially hashed sampling":
    Waldspurger et al., Efficient MRC construction with SHARDS, 2015). A thousand ghosts take about 0.1 MB.
    """

    def __init__(self, n_pages: int, full_count: int = _FULL_COUNT, *, is_off: bool = False) -> None:
        """full_count: a ledger of more pages is sampled. is_off: no content is in the sample."""
        self._sampling = _SAMPLING if n_pages > full_count else 1
        # Hashes with one of these bits are not in the sample; the last bit of a page's hash says nothing, because it is 1
        self.mask = -1 if is_off else self._sampling - 1 << 1
        self._capacity = max(n_pages // self._sampling, 1)
        self.hashes: OrderedDict[int, None] = OrderedDict()
        self.hits = 0

    def evicted(self, content_hash: int) -> None:
        """A content is overwritten."""
        if not content_hash & self.mask:
            self.hashes[content_hash] = None
            if len(self.hashes) > self._capacity:
                self.hashes.popitem(last=False)

    def computed(self, content_hash: int) -> None:
        """A content is computed."""
        if not content_hash & self.mask and content_hash in self.hashes:
            del self.hashes[content_hash]
            self.hits += self._sampling

    def kept(self, content_hash: int) -> None:
        """A content that was evicted is there all the same, on another page."""
        self.hashes.pop(content_hash, None)
