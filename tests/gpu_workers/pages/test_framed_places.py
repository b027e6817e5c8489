"""The adaptive tier of a GPU: what happens to a page that is compressed where it lies. Random walks: `test_queued_places`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu_workers.pages.framed_places import FramedPlaces
from messages.wire.arrays import int32s, uint64s
from tests.support.pages.chain_pages import chain_page
from tests.support.pages.tier_bench import TierBench, moves_of

_N_FRAMES = 4


def _full(seed: int) -> tuple[TierBench, FramedPlaces]:
    """A tier whose frames all hold a page as it is: content n + 1 at place n."""
    bench = TierBench(random.Random(seed), "adaptive")
    assert isinstance(bench.tier, FramedPlaces)
    for number in range(_N_FRAMES):
        bench.write(0, chain_page(number + 1).tobytes())
        bench.move(moves_of([(0, number, number + 1)], []), [])
    bench.end_all()
    assert bench.tier.rooms.n_plain == _N_FRAMES
    return bench, bench.tier


@pytest.mark.parametrize("seed", range(5))
def test_a_load_waits_for_the_compression_that_is_queued_before_it(seed: int) -> None:
    bench, tier = _full(seed)
    bench.move(moves_of([(0, 4, 5)], []), [])  # place 0 stays in its frame, and place 1 follows it there
    assert (tier.rooms.frame_of(0), tier.rooms.frame_of(1)) == (None, None)
    bench.move(moves_of([], [(0, 1, 1), (1, 2, 2), (2, 3, 3)]), [])
    for number in (1, 2, 3):
        bench.pages[number] = chain_page(number).tobytes()
    bench.end_all()
    assert tier.rooms.n_plain == 3


@pytest.mark.parametrize("is_behind", [True, False])
def test_damage_before_a_compression_does_not_get_a_good_checksum(is_behind: bool) -> None:
    bench, tier = _full(1)
    frame = tier.rooms.frame_of(0)
    bench.memory.places[frame, 3] ^= 1
    bench.move(moves_of([(0, 4, 5)], []), [])
    if not is_behind:
        bench.end_all()
    bench.move(moves_of([], [(0, 1, 1), (1, 2, 2)]), [0])
    bench.pages[1], bench.pages[2] = None, chain_page(2).tobytes()
    bench.end_all()


def test_the_disk_gets_pages_compressed_and_its_pages_take_units() -> None:
    bench, tier = _full(1)
    page = np.empty(tier.page_bytes, np.uint8)
    check = tier.take(3, 4, page)
    assert check is not None
    tier.put(2, 4, check, page)
    assert (tier.rooms.frame_of(2), tier.rooms.n_plain) == (None, _N_FRAMES - 1)
    assert tier.load(int32s([2]), int32s([5]), uint64s([4])) == []
    assert bench.device.pages[5].tobytes() == chain_page(4).tobytes()


def test_the_disk_writes_to_no_unit_that_a_copy_may_still_use() -> None:
    bench, tier = _full(1)
    page = np.empty(tier.page_bytes, np.uint8)
    check = tier.take(3, 4, page)
    assert check is not None
    tier.put(6, 4, check, page)
    assert not tier.table.hashes_of(np.array([6]))[0], "all memory is in use, and the disk's thread compresses nothing"
    bench.move(moves_of([(0, 4, 5)], []), [])
    tier.clear()
    tier.put(6, 4, check, page)
    assert not tier.table.hashes_of(np.array([6]))[0], "the copies have not ended"
    bench.end_all()
    tier.put(6, 4, check, page)
    assert tier.load(int32s([6]), int32s([5]), uint64s([4])) == []
