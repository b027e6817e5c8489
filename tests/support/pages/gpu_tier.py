"""A host tier over pages of a GPU, for tests of it; as a program, a process that stores pages until it is killed."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

import msgspec
import structlog
import torch

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.layers.int4_places import Int4Places
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.framed_places import FramedPlaces, frame_sizes
from gpu_workers.pages.pinned_places import PinnedPlaces, Pinning
from gpu_workers.pages.queued_places import QueuedPlaces
from gpu_workers.vault.page_places import DoneMoves, QueuedMoves
from messages.wire.arrays import int32s
from tests.support.pages.tier_bench import CAPACITY, NOTHING, moves_of

SHAPE = KvShape(n_layers=16, n_kv_heads=8, head_dim=128, dtype=torch.bfloat16)  # 1 MiB a page
PAGE_BYTES = SHAPE.bytes_per_page
N_PLACES = 24
_CYCLES_PER_S = 1.7e9  # about
_PIN_S = 60.0
_pinned: list[PinnedPlaces] = []  # CUDA remembers these ranges: while they are kept, no other tier is mapped at their addresses


def spin(seconds: float) -> None:
    """Keep the device's present stream busy for about so long."""
    torch.cuda._sleep(int(seconds * _CYCLES_PER_S))


class TestedTier(QueuedPlaces):
    """A host tier whose insides tests may see."""

    __test__ = False

    def __init__(self, memory: PinnedPlaces, copies: CopyQueue) -> None:
        super().__init__(memory, copies)
        self.memory = memory
        self._slots = SlotTable(CAPACITY)

    @property
    def n_undone(self) -> int:
        """Messages whose copies the GPU has not done."""
        return sum(not getattr(copies, "done").query() for copies in self.copies.in_flight.values())  # noqa: B009

    def hold_page(self, page: int) -> None:
        """A plan that uses this page follows."""
        named = {"page_ids": int32s([page]), "page_slots": int32s([0]), "page_indices": int32s([0])}
        self.copies.hold(msgspec.structs.replace(NOTHING, **named), self._slots)


def framed_tier_of(kv: KvPages, n_frames: int, n_places: int) -> FramedPlaces:
    """An adaptive host tier for these pages, which is ready."""
    from gpu_workers.pages.cuda.cuda_copy_stream import cuda_copies
    from gpu_workers.pages.cuda.cuda_pinning import CudaPinning

    form, pinning = Int4Places(kv.shape), CudaPinning(kv.storage.device)
    n_bytes = n_frames * frame_sizes(0, form).n_units * frame_sizes(0, form).unit_bytes
    copies = cuda_copies(kv, is_compressed=True, is_adaptive=True)
    tier = FramedPlaces(frame_sizes(n_bytes, form), n_places, form, copies, pinning)
    _pinned.append(tier._memory)
    tier.open()
    assert tier.wait_ready(_PIN_S), "the memory was not pinned"
    return tier


def tier_of(kv: KvPages, n_places: int = N_PLACES, opens: bool = True, *, is_compressed: bool = False) -> TestedTier:
    """The host tier for these pages; opens: its memory is its own, and ready."""
    from gpu_workers.pages.cuda.cuda_copy_stream import cuda_copies
    from gpu_workers.pages.cuda.cuda_pinning import CudaPinning

    pinning: Pinning = CudaPinning(kv.storage.device)
    page_bytes = Int4Places(kv.shape).place_bytes if is_compressed else kv.shape.bytes_per_page
    memory = PinnedPlaces(n_places, page_bytes, pinning, is_compressed=is_compressed)
    _pinned.append(memory)
    tier = TestedTier(memory, cuda_copies(kv, is_compressed=is_compressed))
    if opens:
        tier.open()
        assert tier.wait_ready(_PIN_S), "the memory was not pinned"
    return tier


class EndThread:
    """Waits for moves in their order, as the thread of a rank does."""

    def __init__(self) -> None:
        self._queued: SimpleQueue[tuple[QueuedMoves, Callable[[DoneMoves], None]] | None] = SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, queued: QueuedMoves, on_done: Callable[[DoneMoves], None]) -> None:
        self._queued.put((queued, on_done))

    def close(self, deadline_s: float) -> None:
        self._queued.put(None)
        self._thread.join(deadline_s)
        assert not self._thread.is_alive(), "the copies did not end"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while (item := self._queued.get()) is not None:
                queued, on_done = item
                on_done(queued.wait())
        except Exception as error:  # `close` raises it
            self._error = error


class RandomMoves:
    """Random plans and moves over pages whose words are all one number; every load is of something that is there."""

    def __init__(self, tier: TestedTier, words: torch.Tensor, rng: random.Random, busy: Callable[[float], None] = spin) -> None:
        """words: the pages, [n_pages, words of a page] int64. busy: keeps the device busy."""
        self._tier, self._words, self._rng, self._busy = tier, words, rng, busy
        self._ended = EndThread()
        self._pages = [0] * len(words)  # what each will hold
        self._places: dict[int, tuple[int, int]] = {}  # hash and number, by place
        self._number = 0
        self._n_wrong = torch.zeros((), dtype=torch.int64, device=words.device)
        self.n_loads = self.n_failed = 0

    def step(self) -> None:
        match self._rng.choice(["write", "write", "move", "move", "read", "busy"]):
            case "write":
                self._number += 1
                page = self._rng.randrange(len(self._pages))
                self._tier.hold_page(page)
                self._words[page].fill_(self._number)
                self._pages[page] = self._number
            case "move":
                self._move()
            case "read":
                self._read(self._rng.randrange(len(self._pages)))
            case "busy":
                self._busy(self._rng.random() * 0.003)

    def end(self, deadline_s: float) -> tuple[int, int, int]:
        """(pages that were loaded, that failed, that held something else when a plan read them)."""
        for page in range(len(self._pages)):
            self._read(page)
        self._ended.close(deadline_s)
        return self.n_loads, self.n_failed, int(self._n_wrong)

    def _move(self) -> None:
        rng, stores, loads = self._rng, [], []
        for place in rng.sample(range(N_PLACES), rng.randrange(5)):
            page = rng.randrange(len(self._pages))
            self._number += 1
            stores.append((page, place, 2 * self._number + 1))
            self._places[place] = (2 * self._number + 1, self._pages[page])
        targets = rng.sample(range(len(self._pages)), min(rng.randrange(6), len(self._places)))
        for page, place in zip(targets, rng.sample(list(self._places), len(targets)), strict=True):
            content_hash, number = self._places[place]
            loads.append((place, page, content_hash))
            self._pages[page] = number
        parts = [moves_of(stores, []), moves_of([], loads)] if rng.random() < 0.5 else [moves_of(stores, loads)]
        for part in parts:
            self._ended.put(self._tier.queue(part), self._note)
        self.n_loads += len(loads)

    def _read(self, page: int) -> None:
        self._tier.hold_page(page)
        self._n_wrong += (self._words[page] != self._pages[page]).any()

    def _note(self, done: DoneMoves) -> None:
        self.n_failed += len(done.failed)


def main(descriptor: int) -> None:
    """Store page after page in the memory behind a descriptor. The bytes of each are the rest of its hash by 251."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    kv = KvPages.allocate(SHAPE, 16, "cuda")
    pages = kv.storage.view(kv.n_pages, -1).view(torch.uint8)
    tier = tier_of(kv, opens=False)
    tier.region.share(descriptor)
    tier.open()
    assert tier.wait_ready(_PIN_S)
    ended = EndThread()
    for number in range(1, 1 << 30, 2):
        page, place = number // 2 % kv.n_pages, number // 2 % N_PLACES
        tier.hold_page(page)
        pages[page].fill_(number % 251)
        ended.put(tier.queue(moves_of([(page, place, number)], [])), lambda done: None)
        if number // 2 == 3 * N_PLACES:
            torch.cuda.synchronize()
            print("written", flush=True)
        if number // 2 % 8 == 0:
            torch.cuda.synchronize()  # not further ahead than the copies


if __name__ == "__main__":
    main(int(sys.argv[1]))
