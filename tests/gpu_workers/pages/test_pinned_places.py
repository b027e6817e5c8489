"""The places of a GPU's host tier lie whole in pieces that are pinned, and are not used before all of them are."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

from gpu_workers.pages import pinned_places
from gpu_workers.pages.pinned_places import PinnedPlaces
from tests.support.pages.tier_bench import Pins

_DEADLINE_S = 60.0


@pytest.mark.parametrize(("n_places", "page_bytes"), [(1, 8), (5, 4096), (7, 5000), (9, 20_000)])
def test_pieces_cover_every_place_and_cut_none(n_places: int, page_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_places, "_PIECE_BYTES", 3 * 8192)
    pins = Pins()
    memory = PinnedPlaces(n_places, page_bytes, pins)
    assert not memory.is_ready
    memory.open()
    assert memory.wait_ready(_DEADLINE_S)
    for place in range(n_places):
        first = memory.places[place].ctypes.data
        assert memory.places[place].flags.c_contiguous
        assert any(at <= first and first + page_bytes <= at + n for at, n in pins.pieces), place
    ends = [at + n for at, n in pins.pieces]
    assert all(end <= at for end, (at, _) in zip(ends, pins.pieces[1:], strict=False)), "no byte is pinned twice"
    assert all(at % 4096 == 0 and n % 4096 == 0 for at, n in pins.pieces)


def test_memory_that_cannot_be_pinned_is_never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_places, "_PIECE_BYTES", 1)
    memory = PinnedPlaces(4, 64, Pins(n_left=2))
    memory.open()
    assert not memory.wait_ready(_DEADLINE_S)


def test_places_keep_their_address_when_the_memory_is_exchanged() -> None:
    memory = PinnedPlaces(3, 64, Pins())
    memory.places[1] = 7
    before = ctypes.addressof(ctypes.c_char.from_buffer(memory.region.buffer))
    descriptor = memory.region.make()
    memory.region.share(descriptor)
    os.close(descriptor)
    assert not np.asarray(memory.places).any()
    assert ctypes.addressof(ctypes.c_char.from_buffer(memory.region.buffer)) == before


def test_a_forked_process_does_not_get_the_memory() -> None:
    memory = PinnedPlaces(3, 64, Pins())
    memory.places[1] = 7
    memory.open()
    assert memory.wait_ready(_DEADLINE_S)
    address = f"{ctypes.addressof(ctypes.c_char.from_buffer(memory.region.buffer)):x}-"
    smaps = Path("/proc/self/smaps").read_text()
    flags = next(line for line in smaps[smaps.index(address) :].splitlines() if line.startswith("VmFlags:"))
    assert "dc" in flags.split(), "do not copy on fork"
