"""Places that follow the load take memory where pages are stored, give it back when asked, and do without it where there is
none."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gpu_workers.pages.host_form import HostForm
from gpu_workers.pages.sized_pages import SizedHostPages, has_room
from gpu_workers.process.page_moves import answer_of, move_pages
from gpu_workers.vault.host_pages import HostPages, places_at
from messages.caches.page_moves import MovePages
from messages.wire.arrays import EMPTY_I32, int32s, uint64s

_PAGE_BYTES, _N_PLACES = 64 << 10, 64


def _tier(room_bytes: list[int] | None = None, page_bytes: int = _PAGE_BYTES) -> SizedHostPages:
    """Places, and pages of which page i is full of i + 1. room_bytes: notes what was asked for; None: there is room."""
    pages = np.repeat(np.arange(1, 9, dtype=np.uint8)[:, None], page_bytes, axis=1)
    asked = [] if room_bytes is None else room_bytes
    return SizedHostPages(pages, _N_PLACES, room=lambda n_bytes: asked.append(n_bytes) or room_bytes is None)


def _store(tier: HostPages, *places: int) -> None:
    tier.store(int32s([place % 8 for place in places]), int32s(places), uint64s([place + 100 for place in places]))


def _load(tier: HostPages, *places: int) -> list[int]:
    return tier.load(int32s(places), int32s([place % 8 for place in places]), uint64s([place + 100 for place in places]))


def _share(tier: SizedHostPages) -> int:
    """Let its memory be a file, as with a vault. Returns the descriptor, which the caller closes."""
    descriptor = tier.region.make()
    tier.region.share(descriptor)
    return descriptor


def test_only_places_in_use_take_memory() -> None:
    tier = _tier()
    descriptor = _share(tier)
    _store(tier, *range(40))
    assert os.fstat(descriptor).st_blocks * 512 >= 40 * _PAGE_BYTES
    tier.return_places(int32s(range(4, 40)))
    assert os.fstat(descriptor).st_blocks * 512 <= 4 * _PAGE_BYTES + places_at(_N_PLACES)
    assert _load(tier, *range(8)) == [4, 5, 6, 7], "returned places are empty"
    _store(tier, 20)
    assert _load(tier, 20) == []
    assert (tier.pages[4] == 5).all()
    assert tier.take_unstored() == []
    os.close(descriptor)


@pytest.mark.parametrize("page_bytes", [128, 1000, 6000])
def test_places_beside_returned_ones_keep_their_content(page_bytes: int) -> None:
    tier = _tier(page_bytes=page_bytes)
    _store(tier, *range(_N_PLACES))
    tier.return_places(int32s([place for place in range(_N_PLACES) if place % 3]))
    for place in range(_N_PLACES):
        assert _load(tier, place) == ([0] if place % 3 else [])


def test_without_room_nothing_is_stored_and_it_is_said() -> None:
    asked: list[int] = []
    tier = _tier(asked)
    _store(tier, 3, 5)
    assert asked
    assert tier.take_unstored() == [3, 5]
    assert tier.take_unstored() == []
    assert _load(tier, 3, 5) == [0, 1]


def test_a_place_that_has_memory_needs_no_more() -> None:
    tier = _tier()
    _store(tier, 3)
    tier._room = lambda n_bytes: False
    tier._allowed_bytes = 0
    _store(tier, 3, 4)
    assert _load(tier, 3, 4) == [1]
    assert tier.take_unstored() == [4]


def test_memory_that_the_system_refuses_ends_no_process() -> None:
    """A file that was cut off has no memory for its end: a write there would be a SIGBUS."""
    tier = _tier()
    descriptor = os.memfd_create("places")
    os.ftruncate(descriptor, tier.region.n_bytes)
    tier.region.share(descriptor)
    os.ftruncate(descriptor, places_at(_N_PLACES) + 8 * _PAGE_BYTES)
    _store(tier, 2, 40)
    assert tier.take_unstored() == [40]
    assert _load(tier, 2, 40) == [1]
    os.close(descriptor)


def test_the_disk_fills_no_place_that_has_no_memory() -> None:
    tier = _tier([])
    tier.put(7, 107, 0, np.ones(_PAGE_BYTES, np.uint8))
    assert tier.take(7, 107, np.empty(_PAGE_BYTES, np.uint8)) is None
    assert tier.take_unstored() == [7]


def test_the_next_answer_names_the_places() -> None:
    tier = _tier([])
    moves = MovePages(
        epoch=1,
        number=2,
        stored_pages=int32s([1]),
        stored_places=int32s([9]),
        stored_hashes=uint64s([5]),
        loaded_places=EMPTY_I32,
        loaded_pages=EMPTY_I32,
        loaded_hashes=uint64s([]),
    )
    assert answer_of(moves, move_pages(tier, moves)).unstored.tolist() == [9]
    tier._room = lambda n_bytes: True
    assert answer_of(moves, move_pages(tier, moves)).unstored.tolist() == []


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match=r"places: expected numbers from 0 to 63, got 64 to 64"):
        _tier().return_places(int32s([64]))


def test_a_part_of_the_memory_is_left_to_others(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  3200000 kB\nMemFree: 5 kB\nMemAvailable:  200000 kB\n")
    assert has_room(100_000 * 1024, meminfo, tmp_path)
    assert not has_room(100_001 * 1024, meminfo, tmp_path)
    assert has_room(1 << 50, tmp_path / "nothing", tmp_path), "what cannot be read refuses nothing"
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("900000\n")
    assert has_room(100_000 * 1024, meminfo, tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    assert has_room(60_000, meminfo, tmp_path)
    assert not has_room(100_000, meminfo, tmp_path)


def test_a_tier_that_does_not_follow_the_load_is_the_plain_one() -> None:
    pages = np.zeros((2, 128), np.uint8)
    assert type(HostForm(1280, 128).make_places(pages, 10)) is HostPages
    sized = HostForm(1280, 128, least_bytes=300)
    assert type(sized.make_places(pages, 10)) is SizedHostPages
    assert (HostForm(1280, 128).n_least_places, sized.n_least_places) == (0, 3)
