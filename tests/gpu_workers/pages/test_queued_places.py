"""Pages move beside plans as if they moved between them: every content arrives whole, and no load fails whose content is there,
however the device and the threads take turns."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu_workers.hash_chain_places import ChainPlaces
from gpu_workers.layers.page_sums import page_sums
from gpu_workers.settings import HostCacheDtype
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import at_depth
from tests.support.pages.chain_pages import chain_page
from tests.support.pages.tier_bench import N_PAGES, N_PLACES, PAGE_BYTES, TierBench, moves_of, places_of
from tests.support.pages.twin_device import TwinDevice

_KINDS: tuple[HostCacheDtype, ...] = ("same", "int4", "adaptive")


class _Walk:
    """A random order of plans, moves, ends and progress of the device, with what each place should hold."""

    def __init__(self, seed: int, kind: HostCacheDtype) -> None:
        self.rng = rng = random.Random(seed)
        self.bench = TierBench(rng, kind, by_layers=rng.random() < 0.5)
        self.content: dict[int, bytes] = {}  # by hash
        self.places: dict[int, int] = {}  # hash, by place, in the order in which everything was queued
        self.number = 1

    def step(self) -> None:
        bench, rng = self.bench, self.rng
        match rng.choice(["write", "read", "layers", "move", "move", "end", "run", "run", "disk", "forget"]):
            case "write":
                bench.write(rng.randrange(N_PAGES), self._page())
            case "read":
                bench.read(rng.randrange(N_PAGES))
            case "layers":
                bench.read_by_layers(rng.randrange(N_PAGES))
            case "move":
                self._move()
            case "end":
                if bench.queued:
                    bench.end_one()
            case "run":
                bench.device.run(rng.randrange(12))
            case "disk":
                self._use_disk()
            case "forget" if rng.random() < 0.05:
                bench.tier.clear()
                self.places.clear()

    def _move(self) -> None:
        """Stores, then loads, in one message or in two, as the scheduler sends them."""
        bench, rng = self.bench, self.rng
        stores, loads, failed = [], [], []
        for place in rng.sample(range(N_PLACES), rng.randrange(4)):
            page = rng.randrange(N_PAGES)
            if (content := bench.pages[page]) is not None:
                self.number += 2
                stores.append((page, place, self.number))
                self.places[place], self.content[self.number] = self.number, content
        for page in rng.sample(range(N_PAGES), rng.randrange(4)):
            place = rng.randrange(N_PLACES)
            wanted = self.places.get(place, 99) if rng.random() < 0.9 else rng.choice([*self.content, 99])
            is_there = self.places.get(place) == wanted
            if place in [other for other, _, _ in loads]:
                continue
            if not is_there:
                failed.append(len(loads))
                self.places.pop(place, None)
            loads.append((place, page, wanted))
            bench.pages[page] = self.content[wanted] if is_there else None
        if rng.random() < 0.5:
            bench.move(moves_of(stores, []), [])
            bench.move(moves_of([], loads), failed)
        else:
            bench.move(moves_of(stores, loads), failed)

    def _use_disk(self) -> None:
        bench, place = self.bench, self.rng.randrange(N_PLACES)
        content = self._page()
        page = self._at_place(content)
        if self.rng.random() < 0.5:
            content_hash = self.places.get(place, 99)
            check = bench.tier.take(place, content_hash, page)
            assert check is None or check == page_sums(page[None])[0]
            assert check is None or page.tobytes() == self._at_place(self.content[content_hash]).tobytes()
        elif not bench.tier.table._n_copies[place]:
            self.number += 2
            bench.tier.put(place, self.number, int(page_sums(page[None])[0]), page)
            self.places[place], self.content[self.number] = self.number, content
            if bench.kind == "adaptive" and bench.tier.table.hashes_of(int32s([place])) != [self.number]:
                self.places.pop(place)  # there was no room that the disk may use now
        else:
            bench.tier.put(place, 9, int(page_sums(page[None])[0]), page)  # changes nothing

    def _page(self) -> bytes:
        return chain_page(self.rng.randrange(1 << 30)).tobytes()

    def _at_place(self, content: bytes) -> np.ndarray:
        """What the disk gets of a page."""
        page = np.frombuffer(bytearray(content), np.uint8)
        if self.bench.kind == "same":
            return page
        form = ChainPlaces()
        form.compress(page, place := np.empty(form.place_bytes, np.uint8))
        return place


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", range(at_depth(10)))
def test_moves_in_any_order_of_events_are_as_if_done_at_once(seed: int, kind: HostCacheDtype) -> None:
    walk = _Walk(seed, kind)
    for _ in range(400):
        walk.step()
    walk.bench.end_all()
    assert walk.bench.n_loaded > 50
    assert walk.bench.n_failed > 5
    assert bool(walk.bench.n_begun_early) == (walk.bench.by_layers and kind != "int4")  # compressed pages come whole


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", range(at_depth(10)))
def test_a_process_that_dies_at_any_moment_leaves_whole_contents_only(seed: int, kind: HostCacheDtype) -> None:
    walk = _Walk(seed, kind)
    for _ in range(walk.rng.randrange(20, 300)):
        walk.step()
    pages = np.zeros((1, PAGE_BYTES), np.uint8)
    tier = places_of(kind, TwinDevice(pages, walk.rng, ChainPlaces()))
    tier._memory.region.buffer[:] = walk.bench.memory.region.buffer  # what the vault would keep
    tier.open()
    assert tier.wait_ready(60.0)
    for place, content_hash in enumerate(np.frombuffer(tier._memory.tags, np.uint64, N_PLACES).tolist()):
        if content_hash:
            assert not tier.load(int32s([place]), int32s([0]), uint64s([content_hash]))
            assert pages[0].tobytes() == walk.content[content_hash]


def test_a_load_of_what_is_still_being_stored_waits_and_comes() -> None:
    bench = TierBench(random.Random(1))
    bench.write(0, b"a" * PAGE_BYTES)
    bench.move(moves_of([(0, 2, 7)], []), [])
    bench.move(moves_of([], [(2, 3, 7)]), [])  # the store has not begun
    bench.pages[3] = bench.pages[0]
    bench.write(0, b"b" * PAGE_BYTES)  # and neither has the plan that takes over its page
    bench.end_all()


def test_damage_of_a_single_bit_is_noticed_and_the_place_is_empty_then() -> None:
    bench = TierBench(random.Random(1))
    bench.write(0, b"a" * PAGE_BYTES)
    bench.move(moves_of([(0, 2, 7)], []), [])
    bench.end_all()
    bench.memory.places[2, 17] ^= 1
    assert bench.tier.take(2, 7, np.zeros(PAGE_BYTES, np.uint8)) is None
    assert bench.tier.load(int32s([2]), int32s([1]), uint64s([7])) == [0]
    bench.memory.places[2, 17] ^= 1
    assert bench.tier.load(int32s([2]), int32s([1]), uint64s([7])) == [0]


def test_without_pinned_memory_nothing_is_copied_and_old_contents_are_not_believed() -> None:
    bench = TierBench(random.Random(1))
    bench.tier.store(int32s([0]), int32s([2]), uint64s([7]))
    bench.memory.is_ready = False
    bench.move(moves_of([(1, 2, 9)], [(2, 3, 9), (2, 4, 7)]), [0, 1])
    bench.end_one()
    bench.memory.is_ready = True
    assert bench.tier.load(int32s([2]), int32s([1]), uint64s([7])) == [0]
    assert not bench.device.copies.queued


@pytest.mark.parametrize(("page", "place"), [(N_PAGES, 0), (-1, 0), (0, N_PLACES), (0, -1)])
def test_unknown_pages_and_places_are_errors(page: int, place: int) -> None:
    tier = TierBench(random.Random(1)).tier
    with pytest.raises(ValueError, match="expected numbers from 0 to"):
        tier.store(int32s([page]), int32s([place]), uint64s([7]))
    with pytest.raises(ValueError, match="expected numbers from 0 to"):
        tier.load(int32s([place]), int32s([page]), uint64s([7]))


def test_cleared_places_are_empty_also_those_on_their_way() -> None:
    bench = TierBench(random.Random(1))
    bench.tier.store(int32s([0]), int32s([1]), uint64s([5]))
    bench.move(moves_of([(1, 2, 7)], []), [])
    bench.tier.clear()
    bench.move(moves_of([], [(1, 3, 5), (2, 4, 7)]), [0, 1])
    bench.pages[3] = bench.pages[4] = None
    bench.end_all()
    assert not np.frombuffer(bench.memory.tags, np.uint64, N_PLACES).any()
