"""The host tier of one rank: places of ordinary memory, each for the bytes of one page, with the hash of its content.

Whoever asks for a page names the hash that it expects, and a checksum (CRC-32) covers the bytes. So a place that was
overwritten, never written or damaged gives nothing, instead of the keys and values of another prefix. The hash is stored after
the bytes: a process that dies meanwhile leaves a place without content.

All of it lies in one region, which can be exchanged for that of the process before: hashes, checksums, then the bytes.
"""

from __future__ import annotations

import mmap
import threading
import zlib
from typing import NamedTuple

import numpy as np

from gpu_workers.vault.host_region import HostRegion
from gpu_workers.vault.page_places import PagePlaces
from gpu_workers.vault.place_format import PlaceFormat

_ALIGNED_BYTES = 4096  # where the places begin


class PlaceArrays(NamedTuple):
    """The parts of a region, by place."""

    hashes: np.ndarray  # [n_places] uint64; 0: no content
    sums: np.ndarray  # [n_places] uint32
    places: np.ndarray  # [n_places, bytes of a page] uint8


def region_bytes(n_places: int, page_bytes: int) -> int:
    """Size of a region of so many places."""
    return places_at(n_places) + n_places * page_bytes


def place_arrays(memory: memoryview | mmap.mmap, n_places: int, page_bytes: int) -> PlaceArrays:
    """The parts of a region."""
    places = np.frombuffer(memory, np.uint8, n_places * page_bytes, places_at(n_places)).reshape(n_places, page_bytes)
    return PlaceArrays(
        np.frombuffer(memory, np.uint64, n_places), np.frombuffer(memory, np.uint32, n_places, n_places * 8), places
    )


def places_at(n_places: int) -> int:
    """Where the first place begins in the region."""
    return -(-n_places * 12 // _ALIGNED_BYTES) * _ALIGNED_BYTES


class HostPages(PagePlaces):
    """`n_places` places beside the pages of one rank."""

    def __init__(self, pages: np.ndarray, n_places: int, form: PlaceFormat | None = None) -> None:
        """pages: [n_pages, bytes of a page] uint8, the memory of the pages, which must not move. form: of places; None: they
        have the bytes of pages.

        Raises: OSError when the machine has no memory for the places. The kernel gives it when they are first written."""
        self.pages = pages
        self._lock = threading.Lock()  # is held while one place is copied or changed, because a disk has a thread of its own
        self._form = form
        self.page_bytes = pages.shape[1] if form is None else form.place_bytes
        self._compressed = np.empty(self.page_bytes if form is not None else 0, np.uint8)  # used by the step thread
        self.region = HostRegion(region_bytes(n_places, self.page_bytes))
        self._hashes, self._sums, self._places = place_arrays(self.region.buffer, n_places, self.page_bytes)

    def store(self, pages: np.ndarray, places: np.ndarray, hashes: np.ndarray) -> None:
        self._check(pages, places)
        for page, place, content_hash in zip(pages.tolist(), places.tolist(), hashes.tolist(), strict=True):
            content = self.pages[page]
            if self._form is not None:
                self._form.compress(content, self._compressed)
                content = self._compressed
            self._fill(place, content_hash, self._check_of(content_hash, content), content)

    def load(self, places: np.ndarray, pages: np.ndarray, hashes: np.ndarray) -> list[int]:
        self._check(pages, places)
        failed = []
        for index, (place, page, content_hash) in enumerate(zip(places.tolist(), pages.tolist(), hashes.tolist(), strict=True)):
            target = self.pages[page] if self._form is None else self._compressed
            if self.take(place, content_hash, target) is None:
                self._hashes[place] = 0
                failed.append(index)
            elif self._form is not None:
                self._form.expand(target, self.pages[page])
        return failed

    def take(self, place: int, content_hash: int, page: np.ndarray) -> int | None:
        with self._lock:
            if self._hashes[place] != content_hash:
                return None
            page[:] = self._places[place]
            check = int(self._sums[place])
        return check if self._check_of(content_hash, page) == check else None

    def put(self, place: int, content_hash: int, check: int, page: np.ndarray) -> None:
        self._fill(place, content_hash, check, page)

    def clear(self) -> None:
        with self._lock:
            self._hashes[:] = 0

    def check_pages(self, pages: np.ndarray) -> None:
        """Raises: ValueError for an unknown page."""
        _check_numbers("pages", pages, len(self.pages))

    def check_places(self, places: np.ndarray) -> None:
        """Raises: ValueError for an unknown place."""
        _check_numbers("places", places, len(self._places))

    def _check_of(self, content_hash: int, page: np.ndarray) -> int:
        """The checksum of a page that has this content."""
        return zlib.crc32(page.data)

    def _fill(self, place: int, content_hash: int, check: int, page: np.ndarray) -> None:
        with self._lock:
            self._hashes[place] = 0
            self._places[place] = page
            self._sums[place] = check
            self._hashes[place] = content_hash

    def _check(self, pages: np.ndarray, places: np.ndarray) -> None:
        self.check_pages(pages)
        self.check_places(places)


def _check_numbers(name: str, numbers: np.ndarray, n: int) -> None:
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
        raise ValueError(f"{name}: expected numbers from 0 to {n - 1}, got {numbers.min()} to {numbers.max()}")
