"""The adaptive host tier of a GPU: pages as they are while there is room, then the coldest are compressed, by the GPU.

    step thread          gives rooms to the pages of a message, queues what must be compressed first, then the copies
    moves thread         waits for them, writes the tags of what was stored or compressed, compares checksums
    disk thread          reads and writes places by itself, compressed

As in `QueuedPlaces`, `PlaceTable` says what is where while copies are on their way. A page that is compressed where it lies is
a load and a store of its own place: its old bytes are checked, and loads that are queued behind wait for the new ones.
`PlaceRooms` says in which bytes of the memory a place is. Copies that are queued later run later, so they may use a unit at
once that has become free; the disk may write to it only when all that was queued until then has ended.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpu_workers.layers.page_sums import page_sums
from gpu_workers.pages.copy_queue import CopyQueue, check_numbers
from gpu_workers.pages.copy_stream import Copies, PlaceCompressions, PlaceCopies
from gpu_workers.pages.pinned_places import PLACE_ALIGNED_BYTES, PinnedPlaces, Pinning
from gpu_workers.pages.place_rooms import RECORD_BYTES, Compression, PlaceRooms, count_framed_places
from gpu_workers.pages.place_table import TAG_BYTES, LoadBatch, PlaceTable, StoreBatch
from gpu_workers.vault.page_places import DoneMoves, PagePlaces, QueuedMoves
from gpu_workers.vault.place_format import PlaceFormat
from messages.caches.page_moves import MovePages

_NO_PAGES = np.zeros(0, np.int64)
_DAMAGED = np.uint64(1)  # turns a bit of a checksum, so that nothing has it


class FrameSizes(NamedTuple):
    """How the memory is cut. Units begin where a page of the kernel does, as places of a GPU do."""

    n_frames: int
    n_units: int  # of a frame, at least two
    unit_bytes: int

    @property
    def n_places(self) -> int:
        """Number of places of the tier."""
        return count_framed_places(self.n_frames, self.n_units)


def frame_sizes(n_bytes: int, form: PlaceFormat) -> FrameSizes:
    """The sizes for a tier of `n_bytes`."""
    unit_bytes = -(-form.place_bytes // PLACE_ALIGNED_BYTES) * PLACE_ALIGNED_BYTES
    n_units = max(-(-form.page_bytes // unit_bytes), 2)
    return FrameSizes(n_bytes // (n_units * unit_bytes), n_units, unit_bytes)


class FramedPlaces(PagePlaces):
    """The adaptive host tier of one rank on a GPU. The disk gets compressed pages, and gives them back so."""

    def __init__(self, sizes: FrameSizes, n_places: int, form: PlaceFormat, copies: CopyQueue, pinning: Pinning) -> None:
        """n_places: at most those of the sizes; copies: of the rank's pages, by a stream that compresses as `form` does.
        Raises: OSError when the machine has no memory for that."""
        self._form, self.copies, self._n_places = form, copies, n_places
        self._memory = PinnedPlaces(
            sizes.n_frames, sizes.n_units * sizes.unit_bytes, pinning, n_tag_bytes=n_places * (TAG_BYTES + RECORD_BYTES)
        )
        self.region, self.page_bytes = self._memory.region, form.place_bytes
        self._frames = self._memory.places[:, : form.page_bytes]
        self._units = self._memory.places.reshape(-1, sizes.unit_bytes)[:, : form.place_bytes]
        self._span = sizes.n_units if sizes.unit_bytes == form.place_bytes else 1
        self.table = PlaceTable(self._memory.tags, n_places)
        self.rooms = PlaceRooms(self._memory.tags[n_places * TAG_BYTES :], n_places, sizes.n_frames, sizes.n_units)
        self._n_units = sizes.n_units
        self._lock = threading.Lock()  # is held while rooms change or the disk uses one
        self._number = self.n_ended = 0  # messages that were queued, and that have ended
        self._freed = np.zeros(sizes.n_frames, np.int64)  # the message that freed a part of a frame last

    def open(self) -> None:
        """Believe the records of the region, and begin to pin it."""
        self.table.reload()
        damaged = self.rooms.adopt(self.table.hashes_of(np.arange(self._n_places)) != 0)
        self.table.forget(np.array(damaged, np.int64))
        self._memory.open()

    def wait_ready(self, timeout_s: float) -> bool:
        """As of `QueuedPlaces`."""
        return self._memory.wait_ready(timeout_s)

    def store(self, pages: np.ndarray, places: np.ndarray, hashes: np.ndarray) -> None:
        """As of `PagePlaces`. Waits until it is done; only while nothing else is queued."""
        self._queue(_Moves(pages, places, hashes), _Moves()).wait()

    def load(self, places: np.ndarray, pages: np.ndarray, hashes: np.ndarray) -> list[int]:
        """As of `PagePlaces`. Waits until it is done; only while nothing else is queued."""
        return self._queue(_Moves(), _Moves(pages, places, hashes)).wait().failed

    def queue(self, moves: MovePages) -> QueuedMoves:
        """As of `QueuedPlaces`."""
        return self._queue(
            _Moves(moves.stored_pages, moves.stored_places, moves.stored_hashes),
            _Moves(moves.loaded_pages, moves.loaded_places, moves.loaded_hashes),
        )

    def clear(self) -> None:
        """Forget all contents, also those on their way."""
        with self._lock:
            self.table.clear()
            self.rooms.adopt(np.zeros(self._n_places, bool))
            self._freed[:] = self._number

    def take(self, place: int, content_hash: int, page: np.ndarray) -> int | None:
        """As of `PagePlaces`. A page as it is gets compressed here, on the thread of the disk."""
        with self._lock:
            frame, unit = self.rooms.frame_of(place), self.rooms.unit_of(place)
            if frame is None and unit is None:
                return None
            source = self._units[unit] if frame is None else self._frames[frame]
            content = page if frame is None else np.empty(self._form.page_bytes, np.uint8)
            check = self.table.read(place, content_hash, lambda: np.copyto(content, source))
        if check is None or int(page_sums(content[None])[0]) != check:
            return None
        if frame is None:
            return check
        self._form.compress(content, page)
        return int(page_sums(page[None])[0])

    def put(self, place: int, content_hash: int, check: int, page: np.ndarray) -> None:
        """As of `PagePlaces`. Does nothing while the device copies to or from the place, or where no room is free: a load of
        the page then fails."""
        with self._lock:
            if self.table.is_moving(place):
                return
            self.rooms.release(place)
            unit = self.rooms.take_unit(place, lambda frame: self._freed[frame] <= self.n_ended)
            if unit is None:
                self.table.forget(np.array([place]))
                return
            self.table.write(place, content_hash, check, lambda: np.copyto(self._units[unit], page))

    def _queue(self, stored: _Moves, loaded: _Moves) -> QueuedMoves:
        for moves in (stored, loaded):
            self.copies.check(moves.pages)
            check_numbers("places", moves.places, self._n_places)
        if not self._memory.is_ready:
            self.table.forget(stored.places)
            return _NothingMoved(list(range(len(loaded.places))))
        with self._lock:
            self._number += 1
            compressed = self._compress(self._take_rooms(stored.places.tolist()))
            batches = self.table.begin_store(stored.places, stored.hashes), self.table.begin_load(loaded.places, loaded.hashes)
            found = batches[1].found
            loaded = _Moves(loaded.pages[found], loaded.places[found], loaded.hashes[found])
            for place in reversed(loaded.places.tolist()):  # a page is compressed after those that continue it
                self.rooms.touch(place)
            return _QueuedFrames(self, self._number, compressed, *batches, self._copy(stored, loaded))

    def _take_rooms(self, places: list[int]) -> list[Compression]:
        """Give rooms to pages that are to be stored."""
        for place in places:
            unit = self.rooms.unit_of(place)
            frame = self.rooms.frame_of(place) if unit is None else unit // self._n_units
            if frame is not None:
                self._freed[frame] = self._number
            self.rooms.release(place)
        compressions = self.rooms.take(places)
        self._freed[[each.frame for each in compressions]] = self._number
        return compressions

    def _compress(self, compressions: list[Compression]) -> _Compressed | None:
        places = np.array([each.place for each in compressions], np.int64)
        hashes = self.table.hashes_of(places)
        kept = np.flatnonzero(hashes)  # the others were damaged
        if not len(kept):
            return None
        old = self.table.begin_load(places[kept], hashes[kept])
        new = self.table.begin_store(places[kept], hashes[kept])
        frames, units = np.array([(each.frame, each.unit) for each in compressions], np.int64)[kept].T
        number, copies = self.copies.compress(PlaceCompressions(self._frames, frames, self._units, units))
        return _Compressed(number, copies, old, new)

    def _copy(self, stored: _Moves, loaded: _Moves) -> list[_Copied]:
        """Queue the copies: those to places first, because a page may be loaded to whose content the message stores."""
        stored_plain, loaded_plain = (self.rooms.rooms_of(moves.places)[1] for moves in (stored, loaded))
        none = np.zeros(0, np.int64)
        groups = (
            (True, np.flatnonzero(stored_plain), none),
            (False, np.flatnonzero(~stored_plain), np.flatnonzero(~loaded_plain)),
            (True, none, np.flatnonzero(loaded_plain)),
        )
        return [
            _Copied(
                *self.copies.queue(self._copies_of(stored, to, is_plain), self._copies_of(loaded, came, is_plain)), to, came
            )
            for is_plain, to, came in groups
            if len(to) or len(came)
        ]

    def _copies_of(self, moves: _Moves, chosen: np.ndarray, is_plain: bool) -> PlaceCopies:
        units = self.rooms.rooms_of(moves.places[chosen])[0]
        if is_plain:
            return PlaceCopies(moves.pages[chosen], self._frames, units // self._n_units)
        return PlaceCopies(moves.pages[chosen], self._units, units, self._span, is_compressed=True)


class _Moves(NamedTuple):
    """Pages and places between which bytes move, and their contents: [n] each."""

    pages: np.ndarray = _NO_PAGES
    places: np.ndarray = _NO_PAGES
    hashes: np.ndarray = _NO_PAGES.astype(np.uint64)


class _Compressed(NamedTuple):
    """Places that are compressed where they lie: a load of what was there, and a store of what will be."""

    number: int
    copies: Copies
    old: LoadBatch
    new: StoreBatch


class _Copied(NamedTuple):
    """Some of the copies of a message: which of its stores, and of its loads that were found."""

    number: int
    copies: Copies
    stored: np.ndarray
    loaded: np.ndarray


class _NothingMoved(QueuedMoves):
    """The places are not ready."""

    def __init__(self, failed: list[int]) -> None:
        self._failed = failed

    def wait(self) -> DoneMoves:
        return DoneMoves(self._failed, 0.0, is_early=True)


@dataclass
class _QueuedFrames(QueuedMoves):
    """The moves of one message, queued at `places`."""

    places: FramedPlaces
    number: int
    compressed: _Compressed | None
    stored: StoreBatch
    loaded: LoadBatch
    parts: list[_Copied]

    def wait(self) -> DoneMoves:
        if self.compressed is not None:
            self._end_compressed(self.compressed)
        stored_sums, loaded_sums = (np.zeros(len(batch.places), np.uint64) for batch in (self.stored, self.loaded))
        load_s = 0.0
        for part in self.parts:
            copied = part.copies.wait()
            stored_sums[part.stored], loaded_sums[part.loaded] = copied.stored_sums, copied.loaded_sums
            load_s += copied.load_s if len(part.loaded) else 0.0
        self.places.table.end_store(self.stored, stored_sums)
        failed = self.places.table.end_load(self.loaded, loaded_sums)
        for part in self.parts:
            self.places.copies.end(part.number)
        self.places.n_ended = self.number
        return DoneMoves(failed, load_s)

    def _end_compressed(self, compressed: _Compressed) -> None:
        table, copied = self.places.table, compressed.copies.wait()
        damaged = table.end_load(compressed.old, copied.loaded_sums)
        sums = copied.stored_sums.copy()
        sums[damaged] ^= _DAMAGED  # loads that were queued behind fail
        table.end_store(compressed.new, sums)
        self.places.copies.end(compressed.number)
