"""Rooms of an adaptive tier: no two contents share a unit, a new page is as it is while that is possible, the coldest go."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu_workers.pages.place_rooms import RECORD_BYTES, PlaceRooms, count_framed_places
from tests.support.depth import at_depth

_N_FRAMES, _N_UNITS = 9, 3
_N_PLACES = count_framed_places(_N_FRAMES, _N_UNITS)


class _Memory:
    """Rooms, and in which units a reader would find what: moved as a device would move it."""

    def __init__(self) -> None:
        self.records = memoryview(bytearray(_N_PLACES * RECORD_BYTES))
        self.rooms = PlaceRooms(self.records, _N_PLACES, _N_FRAMES, _N_UNITS)
        self.units: list[tuple[int, str] | None] = [None] * (_N_FRAMES * _N_UNITS)
        self.contents: dict[int, int] = {}  # by place

    def store(self, contents: dict[int, int]) -> None:
        for place in contents:
            self.rooms.release(place)
            self.contents.pop(place, None)
        compressions = self.rooms.take(list(contents))
        for each in compressions:
            units = slice(each.frame * _N_UNITS, (each.frame + 1) * _N_UNITS)
            assert self.units[units] == [(self.contents[each.place], "plain")] * _N_UNITS
        for each in compressions:
            self.units[each.unit] = (self.contents[each.place], "small")
        for place, content in contents.items():
            self.contents[place] = content
            self._write(place, content)

    def put(self, place: int, content: int) -> None:
        self.rooms.release(place)
        self.contents.pop(place, None)
        if self.rooms.take_unit(place, lambda frame: frame != 3) is not None:
            self.contents[place] = content
            self._write(place, content)

    def check(self) -> None:
        for place, content in self.contents.items():
            frame, unit = self.rooms.frame_of(place), self.rooms.unit_of(place)
            if frame is not None:
                assert self.units[frame * _N_UNITS : (frame + 1) * _N_UNITS] == [(content, "plain")] * _N_UNITS
            else:
                assert unit is not None
                assert self.units[unit] == (content, "small")
        assert self.rooms.n_plain == sum(self.rooms.frame_of(place) is not None for place in range(_N_PLACES))

    def _write(self, place: int, content: int) -> None:
        frame, unit = self.rooms.frame_of(place), self.rooms.unit_of(place)
        if frame is not None:
            self.units[frame * _N_UNITS : (frame + 1) * _N_UNITS] = [(content, "plain")] * _N_UNITS
        else:
            assert unit is not None
            self.units[unit] = (content, "small")


@pytest.mark.parametrize("seed", range(at_depth(10)))
def test_contents_stay_where_the_rooms_say_over_deaths(seed: int) -> None:
    rng, memory = random.Random(seed), _Memory()
    for number in range(1, 400):
        match rng.choices(["store", "put", "touch", "die", "clear"], [50, 10, 30, 5, 1])[0]:
            case "store":
                places = rng.sample(range(_N_PLACES), rng.randint(1, 5))
                memory.store({place: number * 10 + index for index, place in enumerate(places)})
            case "put":
                memory.put(rng.randrange(_N_PLACES), number * 10 + 9)
            case "touch":
                memory.rooms.touch(rng.randrange(_N_PLACES))
            case "die":
                order = list(memory.rooms._plain)
                memory.rooms = PlaceRooms(memory.records, _N_PLACES, _N_FRAMES, _N_UNITS)
                assert memory.rooms.adopt(np.isin(np.arange(_N_PLACES), list(memory.contents))) == []
                assert list(memory.rooms._plain) == order
            case "clear":
                memory.contents.clear()
                memory.rooms.adopt(np.zeros(_N_PLACES, bool))
        memory.check()


def test_a_full_tier_has_compressed_all_but_the_newest() -> None:
    memory = _Memory()
    for place in range(_N_PLACES):
        memory.store({place: place + 1})
        if place < _N_FRAMES:
            assert memory.rooms.n_plain == place + 1, "nothing is compressed while there is room"
    n_plain = _N_FRAMES // 4
    assert [memory.rooms.frame_of(place) is not None for place in range(_N_PLACES)] == [
        place >= _N_PLACES - n_plain for place in range(_N_PLACES)
    ]
    for number in range(100):
        memory.store({number % _N_PLACES: 1000 + number})
        memory.check()
        assert memory.rooms.n_plain == n_plain, "a frame is left for each new page"


def test_a_page_that_was_used_is_not_the_next_to_be_compressed() -> None:
    memory = _Memory()
    memory.store({place: place + 1 for place in range(_N_FRAMES)})
    memory.rooms.touch(0)
    memory.store({_N_FRAMES: 99})
    assert memory.rooms.frame_of(0) is not None
    assert memory.rooms.frame_of(1) is None


def test_records_that_claim_one_unit_twice_are_dropped() -> None:
    memory = _Memory()
    memory.store({place: place + 1 for place in range(4)})
    memory.rooms._rooms[3] = memory.rooms._rooms[1]
    memory.rooms._rooms[0] = 1 << 20
    assert memory.rooms.adopt(np.arange(_N_PLACES) < 4) == [0, 3]
    assert memory.rooms.unit_of(0) is memory.rooms.frame_of(3) is None


@pytest.mark.parametrize("n_frames", range(0, 13))
@pytest.mark.parametrize("n_units", [2, 4])
def test_every_size_holds_as_many_contents_as_it_says(n_frames: int, n_units: int) -> None:
    n_places = count_framed_places(n_frames, n_units)
    rooms = PlaceRooms(memoryview(bytearray(n_places * RECORD_BYTES)), n_places, n_frames, n_units)
    for number in range(3 * n_places):
        rooms.release(number % n_places)
        rooms.take([number % n_places])
        held = [unit for place in range(n_places) for unit in rooms._units_of(place)]
        assert len(held) == len(set(held))
    assert all(rooms._units_of(place) for place in range(n_places))
