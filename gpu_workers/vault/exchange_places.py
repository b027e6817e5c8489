"""The places of one rank that ranks of other replicas on the host can read, and those of others as this rank reads them.

One process writes a place and others read it, without a lock between them. So the checksum of a place covers the hash of its
content and its bytes: whatever a reader copies while the place is written, or from a process that died within a write, has a
checksum that is not that of the content it asked for. The bytes are checked where they were copied to, never where they lie.
"""

from __future__ import annotations

import mmap
import os
import time
import zlib
from typing import NamedTuple

import numpy as np

from gpu_workers.vault.exchange_end import DoneExchange, ExchangeEnd, MappedPlaces
from gpu_workers.vault.host_pages import HostPages, PlaceArrays, place_arrays, region_bytes
from messages.caches.exchange import ExchangePages

_HASH_BYTES = 8
_WORST_PADDING = 4096 + 12  # bytes that a region may have beside those of its places


class ExchangePlaces(HostPages, ExchangeEnd):
    """`HostPages` whose checksums cover hashes too, on CPU cores."""

    def map(self, descriptor: int, number: int) -> ForeignPlaces:
        """As of `ExchangeEnd`."""
        return map_places(descriptor, number, self.page_bytes)

    def move(self, moves: ExchangePages, lender: MappedPlaces | None) -> DoneExchange:
        """As of `ExchangeEnd`, at once."""
        failed, began_s = list(range(len(moves.loaded_pages))), time.monotonic()
        self.store(moves.stored_pages, moves.stored_places, moves.stored_hashes)
        stored_s = time.monotonic()
        if failed and isinstance(lender, ForeignPlaces):
            self.check_pages(moves.loaded_pages)
            failed = lender.load(self.pages, moves.loaded_places, moves.loaded_pages, moves.loaded_hashes)
        return DoneExchange(failed, time.monotonic() - stored_s, stored_s - began_s)

    def _check_of(self, content_hash: int, page: np.ndarray) -> int:
        return check_of(content_hash, page)


def check_of(content_hash: int, page: np.ndarray) -> int:
    """CRC-32 of a hash and of the bytes of a page, [bytes of a page] uint8."""
    return zlib.crc32(page.data, zlib.crc32(content_hash.to_bytes(_HASH_BYTES, "little")))


class ForeignPlaces(NamedTuple):
    """The mapped places of a rank of another replica. `number`: of that memory."""

    number: int
    arrays: PlaceArrays

    def close(self) -> None:
        """The memory is unmapped with the last use of the arrays."""

    def load(self, pages: np.ndarray, places: np.ndarray, numbers: np.ndarray, hashes: np.ndarray) -> list[int]:
        """Copy places to pages. Returns the indices of those that have not the expected content.

        Args: pages: [n_pages, bytes of a page] uint8, of this rank; the others [n] each: places, numbers of pages, hashes."""
        failed, n_places = [], len(self.arrays.hashes)
        for index, (place, number, content_hash) in enumerate(
            zip(places.tolist(), numbers.tolist(), hashes.tolist(), strict=True)
        ):
            page = pages[number]
            if not 0 <= place < n_places or self.arrays.hashes[place] != content_hash:
                failed.append(index)
                continue
            check = int(self.arrays.sums[place])
            page[:] = self.arrays.places[place]
            if check_of(content_hash, page) != check:
                failed.append(index)
        return failed


def map_places(descriptor: int, number: int, page_bytes: int) -> ForeignPlaces:
    """The places behind a descriptor, which may be closed afterwards. Raises: OSError; ValueError when that is not memory of
    places for pages of this size."""
    n_bytes = os.fstat(descriptor).st_size
    n_places = n_bytes // (page_bytes + 12)
    while n_places and region_bytes(n_places, page_bytes) > n_bytes:
        n_places -= 1
    if not n_places or n_bytes - region_bytes(n_places, page_bytes) >= page_bytes + _WORST_PADDING:
        raise ValueError(f"exchange: expected memory of places for {page_bytes} bytes, got {n_bytes} bytes")
    memory = mmap.mmap(descriptor, n_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
    return ForeignPlaces(number, place_arrays(memory, n_places, page_bytes))
