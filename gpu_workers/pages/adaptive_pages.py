"""A host tier that holds pages as they are while there is room, and compresses those that were not used for longest.

The memory is cut into units of the size of a compressed page. A compressed page takes one unit, a page as it is takes as many
as its bytes need, anywhere. When a page is to be stored and there are too few free units, the coldest page that is as it is
becomes compressed in its own first unit. There are fewer places than units: even when every place has a content, a part of the
memory (`_PLAIN_SHARE`) is left for pages as they are, which are those that were used last.

The scheduler knows nothing of this. To it a tier is a number of places, and a content at a place is found or not. Each rank may
compress other pages.

    header   id of the process that last used the memory, number of places, number of units
    places   hash, time of the last use, checksum of the bytes, units (the first one alone, if the page is compressed)
    units    the bytes

A place that is being changed has no hash, so a process that dies leaves it without content. Which units are free, and in which
order places were used, follows from the places: the next process finds it out when it first sees the memory of the one before.
"""

from __future__ import annotations

import secrets
import threading
import zlib

import numpy as np

from gpu_workers.pages.plain_pages import PlainPages
from gpu_workers.vault.host_region import HostRegion
from gpu_workers.vault.page_places import PagePlaces
from gpu_workers.vault.place_format import PlaceFormat

_ALIGNED_BYTES = 4096  # where the units begin
_HEADER_WORDS = 3
_NONE = -1  # no unit
_PLAIN_SHARE = 4  # one part in so many of the memory


def count_places(n_bytes: int, form: PlaceFormat) -> int:
    """Number of places of an adaptive tier of this size."""
    n_units, each = n_bytes // form.place_bytes, units_of_page(form)
    n_plain = n_units // (_PLAIN_SHARE * each)
    return n_units - n_plain * (each - 1)


def units_of_page(form: PlaceFormat) -> int:
    """Units that a page takes as it is: at least two."""
    return -(-form.page_bytes // form.place_bytes)


class AdaptivePages(PagePlaces):
    """`n_places` places beside the pages of one rank, in a memory of `n_bytes`.

    The disk gets compressed pages, and gives them back so."""

    def __init__(self, pages: np.ndarray, n_places: int, n_bytes: int, form: PlaceFormat) -> None:
        """pages: as of `HostPages`; n_places: at most `count_places`. Raises: OSError when the machine has no memory."""
        self._pages, self._form = pages, form
        self.page_bytes = form.place_bytes
        self._n_units, self._each = n_bytes // form.place_bytes, units_of_page(form)
        self._lock = threading.Lock()  # is held while places are changed, because a disk has a thread of its own
        sums_at = 8 * (_HEADER_WORDS + 2 * n_places)
        units_at = sums_at + 4 * n_places
        bytes_at = -(-(units_at + 4 * n_places * self._each) // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self.region = HostRegion(bytes_at + self._n_units * form.place_bytes)
        memory = self.region.buffer
        self._header = np.frombuffer(memory, np.uint64, _HEADER_WORDS)
        self._hashes = np.frombuffer(memory, np.uint64, n_places, 8 * _HEADER_WORDS)  # 0: no content
        self._used = np.frombuffer(memory, np.uint64, n_places, 8 * (_HEADER_WORDS + n_places))
        self._sums = np.frombuffer(memory, np.uint32, n_places, sums_at)
        self._units = np.frombuffer(memory, np.int32, n_places * self._each, units_at).reshape(n_places, self._each)
        self._memory = np.frombuffer(memory, np.uint8, self._n_units * form.place_bytes, bytes_at).reshape(self._n_units, -1)
        self._facts = np.array([secrets.randbits(63) | 1, n_places, self._n_units], np.uint64)
        self._free: list[int] = []  # units
        self._plain = PlainPages(self._used)
        self._page, self._small = np.empty(form.page_bytes, np.uint8), np.empty(form.place_bytes, np.uint8)

    @property
    def n_plain(self) -> int:
        """Number of contents that are as they are."""
        return len(self._plain)

    def store(self, pages: np.ndarray, places: np.ndarray, hashes: np.ndarray) -> None:
        self._check(pages, places)
        for page, place, content_hash in zip(pages.tolist(), places.tolist(), hashes.tolist(), strict=True):
            with self._lock:
                self._adopt()
                self._release(place)
                content = self._pages[page]
                if not self._make_room(self._each):
                    self._make_room(1)
                    self._form.compress(content, self._small)
                    content = self._small
                self._fill(place, content_hash, zlib.crc32(content.data), content)

    def load(self, places: np.ndarray, pages: np.ndarray, hashes: np.ndarray) -> list[int]:
        self._check(pages, places)
        failed = []
        for index, (place, page, content_hash) in enumerate(zip(places.tolist(), pages.tolist(), hashes.tolist(), strict=True)):
            with self._lock:
                self._adopt()
                if not self._load(place, content_hash, self._pages[page]):
                    self._release(place)
                    failed.append(index)
        with self._lock:
            for place in reversed(places.tolist()):  # a page is compressed after those that continue it
                self._plain.touch(place)
        return failed

    def take(self, place: int, content_hash: int, page: np.ndarray) -> int | None:
        with self._lock:
            self._adopt()
            if self._hashes[place] != content_hash:
                return None
            is_plain, check = place in self._plain, int(self._sums[place])
            content = np.empty(self._form.page_bytes, np.uint8) if is_plain else page
            self._read(place, content)
        if zlib.crc32(content.data) != check:
            return None
        if not is_plain:
            return check
        self._form.compress(content, page)
        return zlib.crc32(page.data)

    def put(self, place: int, content_hash: int, check: int, page: np.ndarray) -> None:
        with self._lock:
            self._adopt()
            self._release(place)
            self._make_room(1)
            self._fill(place, content_hash, check, page)

    def clear(self) -> None:
        with self._lock:
            self._hashes[:] = 0
            self._header[0] = 0  # so that all units are found to be free

    # -- with the lock ----------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Find out what is where, if another process has used the memory last."""
        if self._header[0] == self._facts[0]:
            return
        if (self._header[1:] != self._facts[1:]).any():
            self._hashes[:] = 0
        self._header[:] = 0, *self._facts[1:].tolist()  # after a death from here on the next process does the same
        places = np.flatnonzero(self._hashes)
        is_plain = self._units[places, 1] != _NONE
        n_units = np.where(is_plain, self._each, 1)
        units, owners = self._units[places][np.arange(self._each) < n_units[:, None]], np.repeat(places, n_units)
        is_known = (units >= 0) & (units < self._n_units)
        n_owners = np.bincount(units[is_known], minlength=self._n_units)
        is_known[is_known] = n_owners[units[is_known]] == 1
        self._hashes[owners[~is_known]] = 0  # damaged records
        is_free = np.ones(self._n_units, bool)
        is_free[units[self._hashes[owners] != 0]] = False
        self._free = np.flatnonzero(is_free).tolist()
        self._plain.adopt(places[is_plain & (self._hashes[places] != 0)].tolist())
        self._header[0] = self._facts[0]

    def _make_room(self, n_units: int) -> bool:
        """Compress the coldest pages until so many units are free. Returns False, with nothing done, if that is not enough."""
        if len(self._free) + len(self._plain) * (self._each - 1) < n_units:
            return False
        while len(self._free) < n_units and self._plain:
            self._compress(self._plain.coldest)
        return len(self._free) >= n_units

    def _compress(self, place: int) -> None:
        content_hash = self._hashes[place]
        self._read(place, self._page)
        if zlib.crc32(self._page.data) != self._sums[place]:
            self._release(place)  # damaged: it would get a good checksum
            return
        self._form.compress(self._page, self._small)
        first, *others = self._units[place].tolist()
        self._hashes[place] = 0
        self._plain.remove(place)
        self._memory[first] = self._small
        self._units[place, 1:] = _NONE
        self._sums[place] = zlib.crc32(self._small.data)
        self._hashes[place] = content_hash
        self._free += others

    def _fill(self, place: int, content_hash: int, check: int, content: np.ndarray) -> None:
        """Write a page, compressed or as it is, to an empty place. There are enough free units."""
        unit_bytes = self._form.place_bytes
        pieces = [content[at : at + unit_bytes] for at in range(0, len(content), unit_bytes)]
        self._units[place] = _NONE
        for index, piece in enumerate(pieces):
            unit = self._units[place, index] = self._free.pop()
            self._memory[unit, : len(piece)] = piece
        self._sums[place] = check
        self._hashes[place] = content_hash
        if len(pieces) > 1:
            self._plain.add(place)

    def _load(self, place: int, content_hash: int, page: np.ndarray) -> bool:
        """Copy or expand a place to a page. Returns False if it has another content, or is damaged."""
        if self._hashes[place] != content_hash:
            return False
        content = page if place in self._plain else self._small
        self._read(place, content)
        if zlib.crc32(content.data) != self._sums[place]:
            return False
        if content is self._small:
            self._form.expand(content, page)
        return True

    def _read(self, place: int, content: np.ndarray) -> None:
        unit_bytes = self._form.place_bytes
        for index, at in enumerate(range(0, len(content), unit_bytes)):
            piece = content[at : at + unit_bytes]
            piece[:] = self._memory[self._units[place, index], : len(piece)]

    def _release(self, place: int) -> None:
        """Empty a place."""
        if self._hashes[place]:
            self._hashes[place] = 0
            self._plain.remove(place)
            self._free += [unit for unit in self._units[place].tolist() if unit != _NONE]

    def _check(self, pages: np.ndarray, places: np.ndarray) -> None:
        for name, numbers, n in (("pages", pages, len(self._pages)), ("places", places, len(self._hashes))):
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
                raise ValueError(f"{name}: expected numbers from 0 to {n - 1}, got {numbers.min()} to {numbers.max()}")
