"""How often each content was asked for lately, in a few bytes per page, however many contents there are.

A count-min sketch (Cormode and Muthukrishnan, 2005) with conservative updates (Estan and Varghese, 2002): four rows of
counters; a content has one counter in each, and its estimate is the smallest of them. All counters are halved after every ten
requests for each page, so that what was popular long ago is forgotten. A doorkeeper, a Bloom filter, takes the first request
for a content: most contents are asked for once, and they must not fill the counters. Both are parts of TinyLFU (Einziger,
Friedman and Manes, TinyLFU: a highly efficient cache admission policy, 2017), and the widths follow their library Caffeine.
"""

from __future__ import annotations

_HALVED = bytes(count >> 1 for count in range(256))  # by count
_MOST = 15  # the largest count; from here on contents are popular enough
_SAMPLE = 10  # requests for each page of the cache until all counts are halved
_DOOR_WIDTH = 8  # places of the doorkeeper for each page


class FrequencySketch:
    """Counts of hashed contents, for a cache of `n_pages` pages. 12 to 24 bytes per page."""

    def __init__(self, n_pages: int) -> None:
        width = 1 << max(n_pages - 1, 15).bit_length()
        self._mask, self._door_mask = width - 1, width * _DOOR_WIDTH - 1
        self._rows = tuple(bytearray(width) for _ in range(4))
        self._door = bytearray(width * _DOOR_WIDTH)
        self._n_until_ageing = self._period = _SAMPLE * n_pages

    def add(self, content_hash: int) -> None:
        """Count a request for this content."""
        self._n_until_ageing -= 1
        if not self._n_until_ageing:
            self._age()
        door, place, other = self._door, content_hash & self._door_mask, content_hash >> 32 & self._door_mask
        if not (door[place] and door[other]):
            door[place] = door[other] = 1
            return
        one, two, three, four = self._rows
        mask = self._mask
        a, b, c, d = content_hash & mask, content_hash >> 14 & mask, content_hash >> 28 & mask, content_hash >> 42 & mask
        least = min(one[a], two[b], three[c], four[d])
        if least < _MOST:
            more = least + 1
            if one[a] == least:
                one[a] = more
            if two[b] == least:
                two[b] = more
            if three[c] == least:
                three[c] = more
            if four[d] == least:
                four[d] = more

    def estimate(self, content_hash: int) -> int:
        """How often this content was asked for lately: never too low before the first ageing, seldom too high."""
        place, other = content_hash & self._door_mask, content_hash >> 32 & self._door_mask
        one, two, three, four = self._rows
        mask = self._mask
        a, b, c, d = content_hash & mask, content_hash >> 14 & mask, content_hash >> 28 & mask, content_hash >> 42 & mask
        return min(one[a], two[b], three[c], four[d]) + (self._door[place] & self._door[other])

    def _age(self) -> None:
        self._n_until_ageing = self._period
        for row in self._rows:
            row[:] = row.translate(_HALVED)
        self._door[:] = bytes(len(self._door))
