"""Places of an adaptive tier give what was stored there, or nothing, and only the coldest pages are compressed."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from gpu_workers.hash_chain_places import ChainPlaces
from gpu_workers.pages.adaptive_pages import AdaptivePages, count_places
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import at_depth
from tests.support.pages.chain_pages import chain_page

_FORM = ChainPlaces()
_N_PAGES, _N_UNITS = 6, 17
_N_BYTES = _N_UNITS * _FORM.place_bytes
_N_PLACES = count_places(_N_BYTES, _FORM)


def chain_memory(n_pages: int) -> np.ndarray:
    """Memory for pages: [n_pages, bytes of a page], zeroed."""
    return np.zeros((n_pages, _FORM.page_bytes), np.uint8)


def _tier(pages: np.ndarray) -> AdaptivePages:
    return AdaptivePages(pages, _N_PLACES, _N_BYTES, _FORM)


def _check_units(tier: AdaptivePages) -> None:
    """Each unit is free or of one place, and the oldest page that is as it is comes first."""
    units = [unit for place in np.flatnonzero(tier._hashes) for unit in tier._units[place].tolist() if unit >= 0]
    assert sorted([*units, *tier._free]) == list(range(_N_UNITS))
    assert list(tier._plain) == sorted(tier._plain, key=lambda place: tier._used[place])
    assert set(tier._plain) == {place for place in np.flatnonzero(tier._hashes) if tier._units[place, 1] >= 0}


class _Stage:
    """A tier in memory that outlives its processes, and what should be in it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pages = chain_memory(_N_PAGES)
        self.tier = _tier(self.pages)
        self.descriptor = self.tier.region.make()
        self.tier.region.share(self.descriptor)
        self.stored: dict[int, int] = {}  # hash, by place, of undamaged contents
        self.counts = dict.fromkeys(("loaded", "failed", "disk"), 0)

    def store(self, number: int, page: int, place: int) -> None:
        self.pages[page] = chain_page(number)
        self.tier.store(int32s([page]), int32s([place]), uint64s([number]))
        self.stored[place] = number

    def load(self, number: int, page: int, place: int) -> None:
        wanted = number if self.rng.random() < 0.2 else self.stored.get(place, number)
        failed = self.tier.load(int32s([place]), int32s([page]), uint64s([wanted]))
        assert failed == ([] if self.stored.get(place) == wanted else [0])
        if failed:
            self.stored.pop(place, None)
        else:
            assert self.pages[page].tobytes() == chain_page(wanted).tobytes()
        self.counts["failed" if failed else "loaded"] += 1

    def disk(self, number: int, _page: int, place: int) -> None:
        """A content goes to the disk and comes back to another place."""
        target, written = self.rng.randrange(_N_PLACES), np.zeros(self.tier.page_bytes, np.uint8)
        check = self.tier.take(place, self.stored.get(place, number), written)
        assert (check is not None) == (place in self.stored)
        if check is not None:
            self.tier.put(target, self.stored[place], check, written)
            self.stored[target] = self.stored[place]
            self.counts["disk"] += 1

    def damage(self, _number: int, _page: int, place: int) -> None:
        if place in self.stored:
            unit, at = self.tier._units[place, 0], self.rng.randrange(self.tier.page_bytes)
            self.tier._memory[unit, at] ^= 1 << self.rng.randrange(8)
            self.stored.pop(place)

    def die(self, _number: int, _page: int, _place: int) -> None:
        self.tier = _tier(self.pages)
        self.tier.region.share(self.descriptor)
        self.tier._adopt()

    def clear(self, _number: int, _page: int, _place: int) -> None:
        self.tier.clear()
        self.stored.clear()


@pytest.mark.parametrize("seed", range(at_depth(4)))
def test_random_moves_with_damage_and_deaths_give_the_content_or_nothing(seed: int) -> None:
    stage = _Stage(seed)
    moves = (stage.store, stage.load, stage.disk, stage.damage, stage.die, stage.clear)
    for number in range(1, 1500):
        move = stage.rng.choices(moves, [40, 30, 10, 4, 2, 0.3])[0]
        move(number, stage.rng.randrange(_N_PAGES), stage.rng.randrange(_N_PLACES))
        if stage.tier._header[0]:
            _check_units(stage.tier)
    os.close(stage.descriptor)
    assert min(stage.counts.values()) > 30


def test_a_full_tier_has_compressed_all_but_the_newest() -> None:
    pages = chain_memory(1)
    tier = _tier(pages)
    for number in range(_N_PLACES):
        pages[0] = chain_page(number)
        tier.store(int32s([0]), int32s([number]), uint64s([number + 1]))
        if number < _N_UNITS // 2:
            assert tier.n_plain == number + 1, "nothing is compressed while there is room"
    n_plain = _N_UNITS - _N_PLACES
    assert list(tier._plain) == list(range(_N_PLACES - n_plain, _N_PLACES))
    for number in range(_N_PLACES):
        assert not tier.load(int32s([number]), int32s([0]), uint64s([number + 1]))
        assert pages[0].tobytes() == chain_page(number).tobytes()


def test_a_page_that_was_loaded_is_not_the_next_to_be_compressed() -> None:
    pages = chain_memory(2)
    tier = _tier(pages)
    n_plain = _N_UNITS // 2
    for number in range(n_plain):
        pages[0] = chain_page(number)
        tier.store(int32s([0]), int32s([number]), uint64s([number + 1]))
    tier.load(int32s([0]), int32s([1]), uint64s([1]))
    tier.store(int32s([0]), int32s([n_plain]), uint64s([99]))
    assert 0 in tier._plain
    assert 1 not in tier._plain


def test_records_that_claim_one_unit_twice_are_dropped() -> None:
    pages = chain_memory(1)
    tier = _tier(pages)
    descriptor = tier.region.make()
    tier.region.share(descriptor)
    for number in range(4):
        pages[0] = chain_page(number)
        tier.store(int32s([0]), int32s([number]), uint64s([number + 1]))
    tier._units[1, 1], tier._units[3, 0] = tier._units[0, 0], _N_UNITS + 5
    successor = _tier(pages)
    successor.region.share(descriptor)
    os.close(descriptor)
    assert successor.load(int32s([0, 1, 2, 3]), int32s([0] * 4), uint64s([1, 2, 3, 4])) == [0, 1, 3]
    _check_units(successor)


@pytest.mark.parametrize("n_bytes", range(0, 12 * _FORM.place_bytes, 40))
def test_every_size_holds_as_many_contents_as_it_says(n_bytes: int) -> None:
    n_places = count_places(n_bytes, _FORM)
    if not n_places:
        return
    pages = chain_memory(1)
    tier = AdaptivePages(pages, n_places, n_bytes, _FORM)
    for number in range(3 * n_places):
        pages[0] = chain_page(number)
        tier.store(int32s([0]), int32s([number % n_places]), uint64s([number + 1]))
    for number in range(2 * n_places, 3 * n_places):
        assert not tier.load(int32s([number % n_places]), int32s([0]), uint64s([number + 1]))
        assert pages[0].tobytes() == chain_page(number).tobytes()


@pytest.mark.parametrize(("page", "place"), [(1, 0), (-1, 0), (0, _N_PLACES), (0, -1)])
def test_unknown_pages_and_places_are_errors(page: int, place: int) -> None:
    with pytest.raises(ValueError, match="expected numbers from 0 to"):
        _tier(chain_memory(1)).store(int32s([page]), int32s([place]), uint64s([7]))
