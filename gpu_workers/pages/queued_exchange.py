"""A GPU's end of the exchange with other replicas: pages go through pinned memory of the host, by copies beside the steps.

    lender's step thread     queues copies of pages to its places; its moves thread writes hashes and checksums when they end
    borrower's step thread   reads hash and checksum of each place, queues copies of the places to pages
    borrower's moves thread  compares the checksums of what has come

The memory of a place is written by one process and read by others without a lock. So a checksum covers the hash of the content
too: whatever a reader gets while a place is overwritten is not what it asked for. Both ends pin the memory, piece by piece in a
thread of their own; until that has ended stores do nothing and loads fail.
"""

from __future__ import annotations

import os

import numpy as np

from gpu_workers.pages.copy_queue import CopyQueue, check_numbers
from gpu_workers.pages.copy_stream import Copies
from gpu_workers.pages.pinned_places import PinnedPlaces, Pinning, places_in
from gpu_workers.pages.place_table import PlaceTable, StoreBatch
from gpu_workers.vault.exchange_end import DoneExchange, ExchangeEnd, MappedPlaces, QueuedExchange
from messages.caches.exchange import ExchangePages

_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that two hashes never give the same product


class PinnedExchange(ExchangeEnd):
    """`copies`: of this rank's pages; `n_places` of one page each, which other replicas read."""

    def __init__(self, copies: CopyQueue, n_places: int, page_bytes: int, pinning: Pinning) -> None:
        """Raises: OSError when the machine has no memory for the places."""
        self._pinning, self.copies = pinning, copies
        self._memory = PinnedPlaces(n_places, page_bytes, pinning, "exchange")
        self.region = self._memory.region
        self.table = PlaceTable(self._memory.tags, n_places)

    def open(self) -> None:
        self.table.reload()
        self._memory.open()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait, after `open`, until pages can be copied, or until that is known to have failed. Returns whether they can."""
        return self._memory.wait_ready(timeout_s)

    def clear(self) -> None:
        self.table.clear()

    def map(self, descriptor: int, number: int) -> ForeignMemory:
        page_bytes = self._memory.page_bytes
        n_places = places_in(os.fstat(descriptor).st_size, page_bytes)
        if not n_places:
            raise ValueError(f"exchange: expected memory of places for {page_bytes} bytes")
        memory = PinnedPlaces(n_places, page_bytes, self._pinning, "exchange with another replica")
        memory.region.share(descriptor)
        memory.open()
        return ForeignMemory(number, memory)

    def move(self, moves: ExchangePages, lender: MappedPlaces | None) -> DoneExchange | QueuedExchange:
        self.copies.check(moves.stored_pages)
        self.copies.check(moves.loaded_pages)
        check_numbers("places", moves.stored_places, self._memory.n_places)
        is_stored = self._memory.is_ready and len(moves.stored_pages) > 0
        if not is_stored:
            self.table.forget(moves.stored_places)
        found, wanted = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        if isinstance(lender, ForeignMemory):
            found, wanted = lender.find(moves.loaded_places, moves.loaded_hashes)
        if not is_stored and not len(found):
            return DoneExchange(list(range(len(moves.loaded_pages))))
        stored = slice(None) if is_stored else slice(0)
        batch = self.table.begin_store(moves.stored_places[stored], moves.stored_hashes[stored])
        memory = lender.memory if isinstance(lender, ForeignMemory) else self._memory
        number, copies = self.copies.queue(
            self._memory.copies(moves.stored_pages[stored], moves.stored_places[stored]),
            memory.copies(moves.loaded_pages[found], moves.loaded_places[found]),
        )
        return _ExchangeCopies(self, number, copies, batch, moves, found, wanted)


class ForeignMemory(MappedPlaces):
    """Places of a rank of another replica, in memory that this process pins too."""

    def __init__(self, number: int, memory: PinnedPlaces) -> None:
        self._number, self.memory = number, memory
        self._hashes = np.frombuffer(memory.tags, np.uint64, memory.n_places)
        self._sums = np.frombuffer(memory.tags, np.uint64, memory.n_places, memory.n_places * 8)

    @property
    def number(self) -> int:
        return self._number

    def find(self, places: np.ndarray, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(indices of the places that have these contents, their checksums), none while they are not pinned. Args: [n]."""
        if not self.memory.is_ready:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        inside = np.flatnonzero((places >= 0) & (places < self.memory.n_places))
        found = inside[(self._hashes[places[inside]] == hashes[inside]) & (hashes[inside] != 0)]
        return found, self._sums[places[found]].copy()

    def close(self) -> None:
        self.memory.unpin()


class _ExchangeCopies(QueuedExchange):
    """The moves of one message with their copies. found: indices of what is loaded, [m]; wanted: its checksums, [m]."""

    def __init__(
        self, end: PinnedExchange, number: int, copies: Copies, stored: StoreBatch, moves: ExchangePages, found: np.ndarray,
        wanted: np.ndarray,
    ) -> None:  # fmt: skip
        self._end, self._number, self._copies, self._stored = end, number, copies, stored
        self._moves, self._found, self._wanted = moves, found, wanted

    def wait(self) -> DoneExchange:
        copied = self._copies.wait()
        self._end.copies.end(self._number)
        stored_hashes = np.array(self._stored.hashes, np.uint64)
        self._end.table.end_store(self._stored, bound(copied.stored_sums, stored_hashes))
        got = bound(copied.loaded_sums, self._moves.loaded_hashes[self._found])
        good = set(self._found[got == self._wanted].tolist())
        failed = [index for index in range(len(self._moves.loaded_pages)) if index not in good]
        return DoneExchange(failed, load_s=copied.load_s, store_s=copied.store_s)


def bound(sums: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Checksums of pages that cover the hashes of their contents too, modulo 2^64. Args: [n] uint64."""
    return sums + hashes * _HASH_FACTOR
