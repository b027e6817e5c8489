"""The host tier of a GPU: places in pinned memory, and copies beside the steps.

    step thread          queues the copies of a message, in the order of plans; holds plans that use their pages
    moves thread         waits for the copies, writes the tags of stores, compares the checksums of loads
    disk thread          reads and writes places by itself

Nothing waits for the device on the step thread. `PlaceTable` says what is where meanwhile, `CopyQueue` which plans wait.
"""

from __future__ import annotations

import numpy as np

from gpu_workers.layers.page_sums import page_sums
from gpu_workers.pages.copy_queue import CopyQueue, check_numbers
from gpu_workers.pages.copy_stream import Copies
from gpu_workers.pages.pinned_places import PinnedPlaces
from gpu_workers.pages.place_table import LoadBatch, PlaceTable, StoreBatch
from gpu_workers.vault.page_places import DoneMoves, PagePlaces, QueuedMoves
from messages.caches.page_moves import MovePages


class QueuedPlaces(PagePlaces):
    """The host tier of one rank on a GPU. copies: of its pages."""

    def __init__(self, memory: PinnedPlaces, copies: CopyQueue) -> None:
        self._memory, self.copies = memory, copies
        self.region, self.page_bytes = memory.region, memory.page_bytes
        self.table = PlaceTable(memory.tags, memory.n_places)

    def open(self) -> None:
        """Believe the tags of the region, and begin to pin it."""
        self.table.reload()
        self._memory.open()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait, after `open`, until pages can be copied, or until that is known to have failed. Returns whether they can."""
        return self._memory.wait_ready(timeout_s)

    def store(self, pages: np.ndarray, places: np.ndarray, hashes: np.ndarray) -> None:
        """As of `PagePlaces`. Waits until it is done; only while nothing else is queued."""
        none = np.zeros(0, np.int64)
        self._queue(pages, places, hashes, none, none, none.astype(np.uint64)).wait()

    def load(self, places: np.ndarray, pages: np.ndarray, hashes: np.ndarray) -> list[int]:
        """As of `PagePlaces`. Waits until it is done; only while nothing else is queued."""
        none = np.zeros(0, np.int64)
        return self._queue(none, none, none.astype(np.uint64), places, pages, hashes).wait().failed

    def queue(self, moves: MovePages) -> QueuedMoves:
        """Queue the copies of a message. What it returns is to be waited for in the order of the calls."""
        return self._queue(
            moves.stored_pages, moves.stored_places, moves.stored_hashes,
            moves.loaded_places, moves.loaded_pages, moves.loaded_hashes,
        )  # fmt: skip

    def clear(self) -> None:
        """Forget all contents, also those on their way."""
        self.table.clear()

    def take(self, place: int, content_hash: int, page: np.ndarray) -> int | None:
        """As of `PagePlaces`."""
        check = self.table.read(place, content_hash, lambda: np.copyto(page, self._memory.places[place]))
        return check if check is not None and int(page_sums(page[None])[0]) == check else None

    def put(self, place: int, content_hash: int, check: int, page: np.ndarray) -> None:
        """As of `PagePlaces`. Does nothing while the device copies to or from the place: a load of the page then fails."""
        self.table.write(place, content_hash, check, lambda: np.copyto(self._memory.places[place], page))

    def _queue(
        self, stored_pages: np.ndarray, stored_places: np.ndarray, stored_hashes: np.ndarray,
        loaded_places: np.ndarray, loaded_pages: np.ndarray, loaded_hashes: np.ndarray,
    ) -> _Queued:  # fmt: skip
        for pages, places in ((stored_pages, stored_places), (loaded_pages, loaded_places)):
            self.copies.check(pages)
            check_numbers("places", places, self._memory.n_places)
        if not self._memory.is_ready:
            self.table.forget(stored_places)
            return _Queued(self, 0, None, None, None, list(range(len(loaded_places))))
        stored = self.table.begin_store(stored_places, stored_hashes)
        loaded = self.table.begin_load(loaded_places, loaded_hashes)
        number, copies = self.copies.queue(
            self._memory.copies(stored_pages, stored_places),
            self._memory.copies(loaded_pages[loaded.found], loaded_places[loaded.found]),
        )
        return _Queued(self, number, copies, stored, loaded, [])


class _Queued(QueuedMoves):
    """The moves of one message, queued at `places`, with their copies; None: the places are not ready."""

    def __init__(
        self, places: QueuedPlaces, number: int, copies: Copies | None, stored: StoreBatch | None, loaded: LoadBatch | None,
        failed: list[int],
    ) -> None:  # fmt: skip
        self._places, self._number, self._copies = places, number, copies
        self._stored, self._loaded, self._failed = stored, loaded, failed

    def wait(self) -> DoneMoves:
        if self._copies is None or self._stored is None or self._loaded is None:
            return DoneMoves(self._failed, 0.0, is_early=True)
        copied = self._copies.wait()
        self._places.table.end_store(self._stored, copied.stored_sums)
        failed = self._places.table.end_load(self._loaded, copied.loaded_sums)
        self._places.copies.end(self._number)
        return DoneMoves(failed, copied.load_s if len(copied.loaded_sums) else 0.0)
