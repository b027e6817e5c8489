"""Pages go from one GPU's rank to another's through places that are overwritten meanwhile: what comes is right, or fails."""

from __future__ import annotations

import os
import random
from collections import deque

import msgspec
import numpy as np
import pytest

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.queued_exchange import ForeignMemory, PinnedExchange
from gpu_workers.vault.exchange_end import DoneExchange, QueuedExchange
from messages.caches.exchange import ExchangePages
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import at_depth
from tests.support.pages.tier_bench import CAPACITY, NOTHING, Pins
from tests.support.pages.twin_device import TwinDevice

_N_PAGES, _N_PLACES, _PAGE_BYTES = 6, 4, 64
_DEADLINE_S = 60.0


class _Rank:
    """A rank with pages and an end of the exchange, whose device goes on when the test says so."""

    def __init__(self, rng: random.Random) -> None:
        self.pages = np.zeros((_N_PAGES, _PAGE_BYTES), np.uint8)
        self.device, self.pins = TwinDevice(self.pages, rng), Pins()
        self.end = PinnedExchange(CopyQueue(self.device, _N_PAGES), _N_PLACES, _PAGE_BYTES, self.pins)
        self.descriptor = self.end.region.make()  # what the vault would keep
        self.end.region.share(self.descriptor)
        self.end.open()
        assert self.end.wait_ready(_DEADLINE_S)

    def write(self, page: int, content_hash: int) -> None:
        """A plan that writes a page."""
        plan = msgspec.structs.replace(NOTHING, page_ids=int32s([page]), page_slots=int32s([0]), page_indices=int32s([0]))
        self.end.copies.hold(plan, SlotTable(CAPACITY))
        self.device.plans.add(lambda: np.copyto(self.pages[page], _content(content_hash)))

    def store(self, page: int, place: int, content_hash: int) -> QueuedExchange:
        moves = ExchangePages(
            epoch=1, number=1, stored_pages=int32s([page]), stored_places=int32s([place]), stored_hashes=uint64s([content_hash])
        )
        queued = self.end.move(moves, None)
        assert not isinstance(queued, DoneExchange)
        return queued

    def load(self, lender: ForeignMemory, place: int, page: int, content_hash: int) -> DoneExchange | QueuedExchange:
        moves = ExchangePages(
            epoch=1, number=1, loaded_places=int32s([place]), loaded_pages=int32s([page]), loaded_hashes=uint64s([content_hash])
        )
        return self.end.move(moves, lender)

    def map(self, lender: _Rank, number: int = 1) -> ForeignMemory:
        memory = self.end.map(lender.descriptor, number)
        assert memory.memory.wait_ready(_DEADLINE_S)
        return memory

    def close(self) -> None:
        os.close(self.descriptor)


def _content(content_hash: int) -> np.ndarray:
    return np.frombuffer(random.Random(content_hash).randbytes(_PAGE_BYTES), np.uint8)


def _failed(moved: DoneExchange | QueuedExchange) -> list[int]:
    return moved.failed if isinstance(moved, DoneExchange) else moved.wait().failed


@pytest.mark.parametrize("seed", range(at_depth(40)))
def test_what_comes_is_what_was_asked_for(seed: int) -> None:
    rng = random.Random(seed)
    lender, borrower = _Rank(rng), _Rank(rng)
    foreign = borrower.map(lender)
    stores: deque[QueuedExchange] = deque()
    loads: deque[tuple[int, int, DoneExchange | QueuedExchange]] = deque()
    at_place = [0] * _N_PLACES
    n_good = 0
    for content_hash in range(1, 200):
        match rng.choice(["store", "load", "load", "run", "end", "end", "end"]):
            case "store":
                page, place = rng.randrange(_N_PAGES), rng.randrange(_N_PLACES)
                lender.write(page, content_hash)
                stores.append(lender.store(page, place, content_hash))
                at_place[place] = content_hash
                lender.device.run(rng.randrange(6))
            case "load":
                place, page = rng.randrange(_N_PLACES), rng.randrange(_N_PAGES)
                wanted = at_place[place] if rng.random() < 0.8 else rng.randrange(200)
                if wanted and not any(page == other for other, _, _ in loads):
                    loads.append((page, wanted, borrower.load(foreign, place, page, wanted)))
            case "run":
                rng.choice([lender, borrower]).device.run(rng.randrange(6))
            case "end" if stores and rng.random() < 0.5:
                assert not stores.popleft().wait().failed
            case "end" if loads:
                page, wanted, moved = loads.popleft()
                if not _failed(moved):
                    n_good += 1
                    assert borrower.pages[page].tobytes() == _content(wanted).tobytes()
            case _:
                pass
    assert n_good > 2
    lender.close()
    borrower.close()


def _lent(content_hash: int) -> tuple[_Rank, _Rank, ForeignMemory]:
    """A lender with content 7 at place 1 under this hash, a borrower, and the lender's places as the borrower reads them."""
    rng = random.Random(1)
    lender, borrower = _Rank(rng), _Rank(rng)
    lender.pages[2] = _content(7)
    lender.store(2, 1, content_hash).wait()
    return lender, borrower, borrower.map(lender)


def test_a_flipped_bit_is_noticed() -> None:
    _, borrower, foreign = _lent(7)
    assert not _failed(borrower.load(foreign, 1, 3, 7))
    foreign.memory.places[1, 5] ^= 1
    assert _failed(borrower.load(foreign, 1, 3, 7)) == [0]


def test_bytes_and_checksum_of_another_content_under_its_hash_are_noticed() -> None:
    """As a reader may see a place that is overwritten between its hash and its checksum."""
    _, borrower, foreign = _lent(8)
    foreign._hashes[1] = 7
    assert _failed(borrower.load(foreign, 1, 3, 7)) == [0]


def test_nothing_comes_from_memory_that_is_not_pinned_yet_or_was_given_back() -> None:
    _, borrower, foreign = _lent(7)
    n_pinned = len(borrower.pins.pieces)
    foreign.close()
    assert len(borrower.pins.pieces) < n_pinned
    assert _failed(borrower.load(foreign, 1, 3, 7)) == [0]


def test_places_outside_and_memory_of_another_size_are_refused() -> None:
    lender, borrower, foreign = _lent(7)
    assert foreign.memory.n_places == _N_PLACES
    assert _failed(borrower.load(foreign, 40, 3, 7)) == [0]
    with pytest.raises(ValueError, match="places: expected numbers from 0 to 3, got 9 to 9"):
        lender.store(2, 9, 7)
    empty = os.memfd_create("empty")
    with pytest.raises(ValueError, match="exchange: expected memory of places for 64 bytes"):
        borrower.end.map(empty, 1)
    os.close(empty)
