"""Which content is at which place, while copies to and from the places are on their way.

There are two answers for each place. The *tag* beside the bytes, a hash and a checksum, is for the next process: it is removed
before a copy to the place is queued, and written when that has ended. What this process has *queued* is for the loads that are
queued after it: they may name a content whose copy has not ended, because they run after it. Such a load takes the checksum
from the store, which ends before it.

The step thread begins, another thread ends, and the disk has a third one. A store that ends writes no tag for a place that
something else has changed meanwhile.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

TAG_BYTES = 16  # of each place: its hash, and its checksum


@dataclass(eq=False)
class StoreBatch:
    """Places to which pages are being copied."""

    places: list[int]
    hashes: list[int]
    sums: list[int] = field(default_factory=list)  # once it has ended


@dataclass(eq=False)
class LoadBatch:
    """Places from which pages are being copied: some of those that were asked for."""

    found: np.ndarray  # [m] int64: indices of those that have the content
    failed: list[int]  # indices of the others
    places: list[int] = field(default_factory=list)  # [m]
    hashes: list[int] = field(default_factory=list)  # [m]
    wanted: list[int | tuple[StoreBatch, int]] = field(default_factory=list)  # [m]: checksums, or where they will be


class PlaceTable:
    """The tags of `n_places` places in shared memory, and what is queued. Used by any thread."""

    def __init__(self, memory: memoryview, n_places: int) -> None:
        """memory: `TAG_BYTES` for each place, at a fixed address; zeros mean that nothing is there."""
        self._lock = threading.Lock()
        self._hashes = np.frombuffer(memory, np.uint64, n_places)  # 0: no content
        self._sums = np.frombuffer(memory, np.uint64, n_places, n_places * 8)
        self._queued = self._hashes.copy()  # hashes, as they will be once all that is queued has ended
        self._stores: dict[int, tuple[StoreBatch, int]] = {}  # by place: the store on its way, and the place's index there
        self._n_copies: Counter[int] = Counter()  # by place: copies to and from there that are on their way

    def reload(self) -> None:
        """The memory is another: believe its tags. Nothing may be queued."""
        with self._lock:
            self._queued[:] = self._hashes
            self._stores.clear()

    def clear(self) -> None:
        """Forget all contents, also those on their way."""
        with self._lock:
            self._hashes[:] = 0
            self._queued[:] = 0
            self._stores.clear()

    def forget(self, places: np.ndarray) -> None:
        """These places have no content any more."""
        with self._lock:
            for place in places.tolist():
                self._forget(place)

    def hashes_of(self, places: np.ndarray) -> np.ndarray:
        """The contents of these places once all that is queued has ended, [n] uint64; 0: none."""
        with self._lock:
            return self._queued[places]

    def is_moving(self, place: int) -> bool:
        """True while copies to or from this place are on their way."""
        with self._lock:
            return place in self._n_copies

    def begin_store(self, places: np.ndarray, hashes: np.ndarray) -> StoreBatch:
        """Copies to these places follow. Args: [n]."""
        batch = StoreBatch(places.tolist(), hashes.tolist())
        with self._lock:
            for index, (place, content_hash) in enumerate(zip(batch.places, batch.hashes, strict=True)):
                self._hashes[place] = 0
                self._queued[place] = content_hash
                self._stores[place] = (batch, index)
            self._n_copies.update(batch.places)
        return batch

    def end_store(self, batch: StoreBatch, sums: np.ndarray) -> None:
        """The copies have ended. sums: checksums of the pages, [n] uint64."""
        with self._lock:
            self._end(batch.places)
            batch.sums = sums.tolist()
            for index, place in enumerate(batch.places):
                if self._stores.get(place) == (batch, index):
                    del self._stores[place]
                    self._sums[place] = batch.sums[index]
                    self._hashes[place] = batch.hashes[index]

    def begin_load(self, places: np.ndarray, hashes: np.ndarray) -> LoadBatch:
        """Copies from those places follow that have, or will have, the content with the hash that is expected. Args: [n]."""
        with self._lock:
            has_content = (self._queued[places] == hashes) & (hashes != 0)
            batch = LoadBatch(np.flatnonzero(has_content), np.flatnonzero(~has_content).tolist())
            batch.places, batch.hashes = places[batch.found].tolist(), hashes[batch.found].tolist()
            known, stores = self._sums[batch.places].tolist(), self._stores
            batch.wanted = [stores.get(place) or check for place, check in zip(batch.places, known, strict=True)]
            self._n_copies.update(batch.places)
            for place in places[batch.failed].tolist():
                self._forget(place)
        return batch

    def end_load(self, batch: LoadBatch, sums: np.ndarray) -> list[int]:
        """The copies have ended, and those of all stores that were begun before. sums: checksums of what came, [m] uint64.
        Returns the indices of all pages that have failed."""
        failed = list(batch.failed)
        with self._lock:
            self._end(batch.places)
            for index, (wanted, got) in enumerate(zip(batch.wanted, sums.tolist(), strict=True)):
                expected = wanted if isinstance(wanted, int) else wanted[0].sums[wanted[1]]
                if got == expected:
                    continue
                failed.append(int(batch.found[index]))
                if self._queued[batch.places[index]] == batch.hashes[index]:
                    self._forget(batch.places[index])
        return sorted(failed)

    def read(self, place: int, content_hash: int, copy: Callable[[], None]) -> int | None:
        """Let `copy` read the bytes of a place. Returns their checksum; None, with nothing read, if the place has not this
        content or is being written."""
        with self._lock:
            if not content_hash or self._hashes[place] != content_hash:
                return None
            copy()
            return int(self._sums[place])

    def write(self, place: int, content_hash: int, check: int, copy: Callable[[], None]) -> bool:
        """Let `copy` write the bytes of a place. Returns False, with nothing written, while copies to or from there are on
        their way."""
        with self._lock:
            if self._n_copies[place]:
                return False
            self._hashes[place] = self._queued[place] = 0
            copy()
            self._sums[place] = check
            self._hashes[place] = self._queued[place] = content_hash
            return True

    def _end(self, places: list[int]) -> None:
        for place in places:
            self._n_copies[place] -= 1
            if not self._n_copies[place]:
                del self._n_copies[place]

    def _forget(self, place: int) -> None:
        self._hashes[place] = self._queued[place] = 0
        self._stores.pop(place, None)
