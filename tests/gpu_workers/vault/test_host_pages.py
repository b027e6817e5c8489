"""Places of the host tier give what was stored there, or nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu_workers.vault.host_pages import HostPages
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import at_depth

_N_PAGES, _N_PLACES, _PAGE_BYTES = 6, 4, 64


def _pages(rng: random.Random) -> np.ndarray:
    return np.frombuffer(bytearray(rng.randbytes(_N_PAGES * _PAGE_BYTES)), np.uint8).reshape(_N_PAGES, _PAGE_BYTES)


@pytest.mark.parametrize("seed", range(at_depth(3)))
def test_random_moves_with_damage_give_the_content_or_nothing(seed: int) -> None:
    rng = random.Random(seed)
    pages = _pages(rng)
    tier = HostPages(pages, _N_PLACES)
    content: dict[int, bytes] = {}  # by hash
    stored: dict[int, int] = {}  # hash, by place, of undamaged contents
    n_loaded = n_failed = 0
    for number in range(1, 1000):
        page, place = rng.randrange(_N_PAGES), rng.randrange(_N_PLACES)
        match rng.choice(["store", "load", "damage"]):
            case "store":
                pages[page] = np.frombuffer(rng.randbytes(_PAGE_BYTES), np.uint8)
                tier.store(int32s([page]), int32s([place]), uint64s([number]))
                content[number], stored[place] = pages[page].tobytes(), number
            case "load":
                wanted = rng.choice([*content, number]) if rng.random() < 0.3 else stored.get(place, number)
                failed = tier.load(int32s([place]), int32s([page]), uint64s([wanted]))
                assert failed == ([] if stored.get(place) == wanted else [0])
                if failed:
                    stored.pop(place, None)
                else:
                    assert pages[page].tobytes() == content[wanted]
                n_loaded, n_failed = n_loaded + (not failed), n_failed + bool(failed)
            case "damage":
                if rng.random() < 0.2:
                    tier._places[place, rng.randrange(_PAGE_BYTES)] ^= 1 << rng.randrange(8)
                    stored.pop(place, None)
    assert n_loaded > 50
    assert n_failed > 20


def test_cleared_places_are_empty() -> None:
    tier = HostPages(_pages(random.Random(1)), _N_PLACES)
    tier.store(int32s([1]), int32s([2]), uint64s([7]))
    tier.clear()
    assert tier.load(int32s([2]), int32s([0]), uint64s([7])) == [0]


@pytest.mark.parametrize(("page", "place"), [(_N_PAGES, 0), (-1, 0), (0, _N_PLACES), (0, -1)])
def test_unknown_pages_and_places_are_errors(page: int, place: int) -> None:
    tier = HostPages(_pages(random.Random(1)), _N_PLACES)
    with pytest.raises(ValueError, match="expected numbers from 0 to"):
        tier.store(int32s([page]), int32s([place]), uint64s([7]))
