"""A host tier of a GPU over a device that the test drives, and what should be where."""

from __future__ import annotations

import random
from collections import deque

import msgspec
import numpy as np

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.hash_chain_places import ChainPlaces
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.framed_places import FramedPlaces, FrameSizes
from gpu_workers.pages.pinned_places import PLACE_ALIGNED_BYTES, PinnedPlaces, Pinning
from gpu_workers.pages.queued_places import QueuedPlaces
from gpu_workers.settings import HostCacheDtype
from gpu_workers.vault.page_places import QueuedMoves
from messages.caches.page_moves import MovePages
from messages.steps import EngineCapacity, Plan
from messages.wire.arrays import EMPTY_I32, int32s, uint64s
from tests.support.pages.chain_pages import chain_page
from tests.support.pages.twin_device import TwinDevice, halves

N_PAGES, N_PLACES, PAGE_BYTES = 6, 7, ChainPlaces.page_bytes
_SIZES = FrameSizes(4, 2, PLACE_ALIGNED_BYTES)
CAPACITY = EngineCapacity(
    n_pages=N_PAGES, n_slots=2, max_length=64, max_step_tokens=64, max_lease_steps=1, vocabulary=10, device="twin"
)
NOTHING = Plan(
    epoch=1, step=0, n_steps=1, new=[], new_tokens=EMPTY_I32, page_slots=EMPTY_I32, page_indices=EMPTY_I32, page_ids=EMPTY_I32,
    row_slots=EMPTY_I32, row_starts=EMPTY_I32, row_counts=EMPTY_I32, row_samples=EMPTY_I32,
)  # fmt: skip


class Pins(Pinning):
    """Notes what is pinned; refuses after `n_left` pieces."""

    def __init__(self, n_left: int = 1000) -> None:
        self.pieces: list[tuple[int, int]] = []
        self._n_left = n_left

    def pin(self, address: int, n_bytes: int) -> None:
        if not self._n_left:
            raise OSError("no more memory can be pinned")
        self._n_left -= 1
        self.pieces.append((address, n_bytes))

    def unpin(self, address: int) -> None:
        assert [piece for piece in self.pieces if piece[0] == address]
        self.pieces = [piece for piece in self.pieces if piece[0] != address]


def moves_of(stores: list[tuple[int, int, int]], loads: list[tuple[int, int, int]]) -> MovePages:
    """stores: (page, place, hash); loads: (place, page, hash)."""
    stored, loaded = zip(*stores, strict=True) if stores else ([], [], []), zip(*loads, strict=True) if loads else ([], [], [])
    (pages, places, hashes), (from_places, to_pages, wanted) = stored, loaded
    return MovePages(
        epoch=1, number=1,
        stored_pages=int32s(list(pages)), stored_places=int32s(list(places)), stored_hashes=uint64s(list(hashes)),
        loaded_places=int32s(list(from_places)), loaded_pages=int32s(list(to_pages)), loaded_hashes=uint64s(list(wanted)),
    )  # fmt: skip


def places_of(kind: HostCacheDtype, device: TwinDevice) -> QueuedPlaces | FramedPlaces:
    """Places of this kind for the pages of a device."""
    copies = CopyQueue(device, len(device.pages))
    if kind == "adaptive":
        return FramedPlaces(_SIZES, N_PLACES, ChainPlaces(), copies, Pins())
    is_compressed = kind == "int4"
    place_bytes = ChainPlaces.place_bytes if is_compressed else PAGE_BYTES
    return QueuedPlaces(PinnedPlaces(N_PLACES, place_bytes, Pins(), is_compressed=is_compressed), copies)


class TierBench:
    """`pages`: what each page should hold once all that is queued has run; None: undefined, because a load has failed."""

    def __init__(self, rng: random.Random, kind: HostCacheDtype = "same", *, by_layers: bool = False) -> None:
        """kind: of the places; other than `same`, pages must be those of the hash chain. by_layers: loads of pages as they are
        come so."""
        self.rng, self.kind, self.by_layers = rng, kind, by_layers
        kv = np.tile(chain_page(0), (N_PAGES, 1))
        self.device = TwinDevice(kv, rng, ChainPlaces(), by_layers=by_layers)
        self.tier = places_of(kind, self.device)
        self.memory = self.tier._memory
        self.tier.open()
        assert self.tier.wait_ready(60.0)
        self.slots = SlotTable(CAPACITY)
        self.pages: list[bytes | None] = [chain_page(0).tobytes()] * N_PAGES
        self.queued: deque[tuple[QueuedMoves, list[int]]] = deque()  # with the indices of loads that should fail
        self.n_loaded = self.n_failed = self.n_begun_early = 0

    def hold(self, page: int) -> None:
        self.tier.copies.hold(msgspec.structs.replace(NOTHING, page_ids=int32s([page]), page_slots=int32s([0]),
                                               page_indices=int32s([0])), self.slots)  # fmt: skip

    def write(self, page: int, content: bytes) -> None:
        """A plan that writes a page, by halves."""
        self.hold(page)
        for half in (slice(None, PAGE_BYTES // 2), slice(PAGE_BYTES // 2, None)):
            values = np.frombuffer(content[half], np.uint8)
            self.device.plans.add(lambda half=half, values=values: np.copyto(self.device.pages[page, half], values))
        self.pages[page] = content

    def read(self, page: int) -> None:
        """A plan that reads a page."""
        self.hold(page)
        expected = self.pages[page]

        def run() -> None:
            assert expected is None or self.device.pages[page].tobytes() == expected

        self.device.plans.add(run)

    def read_by_layers(self, page: int) -> None:
        """A plan of one prompt that reads a page, one layer after the other."""
        rows = {
            "row_slots": [0],
            "row_starts": [0],
            "row_counts": [2],
            "row_samples": [1],
            "page_slots": [0],
            "page_indices": [0],
        }
        columns = {name: int32s(column) for name, column in {**rows, "page_ids": [page]}.items()}
        is_urgent = self.rng.random() < 0.2
        arrives = self.tier.copies.hold(msgspec.structs.replace(NOTHING, is_urgent=is_urgent, **columns), self.slots)
        assert not (arrives and is_urgent), "an urgent step waits before it begins"
        self.n_begun_early += arrives
        expected = self.pages[page]
        for layer, half in enumerate(halves(PAGE_BYTES)):
            if arrives:
                self.device.wait(layer)

            def run(half: slice = half) -> None:
                assert expected is None or self.device.pages[page, half].tobytes() == expected[half]

            self.device.plans.add(run)

    def move(self, moves: MovePages, failed: list[int]) -> None:
        self.queued.append((self.tier.queue(moves), failed))

    def end_one(self) -> None:
        """Wait for the oldest moves."""
        queued, expected = self.queued.popleft()
        failed = queued.wait().failed
        assert failed == expected
        self.n_failed += len(failed)
        self.n_loaded += 1

    def end_all(self) -> None:
        while self.queued:
            self.end_one()
        self.device.run(1 << 20)
        for page, content in enumerate(self.pages):
            assert content is None or self.device.pages[page].tobytes() == content
