"""Where the contents of a GPU's adaptive host tier lie, and which of them are to be compressed to make room. Copies nothing.

The memory is cut into frames of some units. A page as it is takes a frame, a compressed one a unit. A new page is as it is
while a frame is free. When none is, the coldest page as it is goes to a free unit elsewhere, compressed, and leaves its frame;
where no unit is free, it stays in the first unit of its own frame, and the next coldest one follows it there. There are fewer
places than units: even when every place has a content, some frames are left for pages as they are.

The records lie in the memory that outlives this process. Which units are free follows from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpu_workers.pages.plain_pages import PlainPages

RECORD_BYTES = 12  # of each place: when it was used last, and its room
_PLAIN_SHARE = 4  # one frame in so many is left for a page as it is
_NO_ROOM = 0


def count_framed_places(n_frames: int, n_units: int) -> int:
    """Number of places for this many frames of `n_units` each."""
    n_plain = n_frames // _PLAIN_SHARE
    return (n_frames - n_plain) * n_units + n_plain


@dataclass(frozen=True)
class Compression:
    """The page of a place, as it is in a frame, is to be compressed to a unit."""

    place: int
    frame: int
    unit: int


class PlaceRooms:
    """Rooms for the contents of `n_places` places in `n_frames` frames of `n_units` units. Unit u is in frame u // n_units."""

    def __init__(self, memory: memoryview, n_places: int, n_frames: int, n_units: int) -> None:
        """memory: `RECORD_BYTES` for each place, at a fixed address; zeros mean that no place has a room. What else it has
        counts from `adopt` on."""
        self._n_frames, self._n_units = n_frames, n_units
        self._used = np.frombuffer(memory, np.uint64, n_places)
        self._rooms = np.frombuffer(memory, np.int32, n_places, n_places * 8)  # see `_set`
        self._plain = PlainPages(self._used)
        self._frames = list(range(n_frames))  # free ones
        self._holes: dict[int, list[int]] = {}  # free units of frames that have compressed pages

    @property
    def n_plain(self) -> int:
        """Number of pages as they are."""
        return len(self._plain)

    def adopt(self, has_content: np.ndarray) -> list[int]:
        """Find out what is free. has_content: [n_places] bool; other places lose their rooms. Returns the places whose records
        are damaged, which have none either."""
        damaged, free, plain = [], dict.fromkeys(range(self._n_frames * self._n_units)), []
        for place in np.flatnonzero(has_content).tolist():
            units = self._units_of(place)
            if units and all(unit in free for unit in units):
                for unit in units:
                    del free[unit]
                plain += [place] if len(units) > 1 else []
            else:
                damaged.append(place)
        self._rooms[~has_content] = self._rooms[damaged] = _NO_ROOM
        self._frames, self._holes = [], {}
        for unit in free:
            self._holes.setdefault(unit // self._n_units, []).append(unit)
        for frame in [frame for frame, units in self._holes.items() if len(units) == self._n_units]:
            del self._holes[frame]
            self._frames.append(frame)
        self._plain.adopt(plain)
        return damaged

    def frame_of(self, place: int) -> int | None:
        """The frame of a page as it is; None: the place has none."""
        unit, is_plain = self._room_of(place)
        return unit // self._n_units if unit is not None and is_plain else None

    def unit_of(self, place: int) -> int | None:
        """The unit of a compressed page; None: the place has none."""
        unit, is_plain = self._room_of(place)
        return None if is_plain else unit

    def rooms_of(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of places [n] that have rooms: their first units, int64 [n], and which have whole frames, bool [n]."""
        rooms = self._rooms[places].astype(np.int64) - 1
        return rooms // 2, rooms % 2 == 1

    def release(self, place: int) -> None:
        """The content of this place is needed no more."""
        for unit in self._units_of(place):
            holes = self._holes.setdefault(unit // self._n_units, [])
            holes.append(unit)
            if len(holes) == self._n_units:
                self._frames.append(unit // self._n_units)
                del self._holes[unit // self._n_units]
        self._rooms[place] = _NO_ROOM
        self._plain.remove(place)

    def take(self, places: list[int]) -> list[Compression]:
        """Give rooms to these places, which have none, for pages that are stored together. Returns what is to be compressed
        first: all of it is read before any of these pages is stored, and in this order."""
        compressions: list[Compression] = []
        are_new = set(places)
        for place in places:
            while not self._frames and self._plain:
                compression = self._compress(self._plain.coldest)
                if compression.place not in are_new:  # else it is stored compressed
                    compressions.append(compression)
            if self._frames:
                self._set(place, self._frames.pop() * self._n_units, is_plain=True)
            else:
                self._set(place, self._take_unit(next(iter(self._holes))), is_plain=False)
        return compressions

    def take_unit(self, place: int, is_quiet: Callable[[int], bool]) -> int | None:
        """Give this place, which has no room, a unit in a frame that `is_quiet`. Returns the unit; None: there is none."""
        frame = next((frame for frame in (*self._holes, *self._frames) if is_quiet(frame)), None)
        if frame is None:
            return None
        self._set(place, unit := self._take_unit(frame), is_plain=False)
        return unit

    def touch(self, place: int) -> None:
        """A page was used: if it is as it is, it is the last to be compressed."""
        self._plain.touch(place)

    def _compress(self, place: int) -> Compression:
        """Let a page as it is have a unit instead of its frame."""
        frame = self.frame_of(place)
        assert frame is not None, "a page as it is"
        self._plain.remove(place)
        if self._holes:
            self._set(place, unit := self._take_unit(next(iter(self._holes))), is_plain=False)
            self._frames.append(frame)
        else:
            self._set(place, unit := frame * self._n_units, is_plain=False)
            self._holes[frame] = list(range(unit + 1, unit + self._n_units))
        return Compression(place, frame, unit)

    def _take_unit(self, frame: int) -> int:
        if frame not in self._holes:
            self._frames.remove(frame)
            self._holes[frame] = list(range(frame * self._n_units, (frame + 1) * self._n_units))
        unit = self._holes[frame].pop()
        if not self._holes[frame]:
            del self._holes[frame]
        return unit

    def _set(self, place: int, unit: int, *, is_plain: bool) -> None:
        """A room is written as 1 + 2 * its first unit, and 1 more if it is a frame."""
        self._rooms[place] = 1 + 2 * unit + is_plain
        if is_plain:
            self._plain.add(place)

    def _room_of(self, place: int) -> tuple[int | None, bool]:
        """(the first unit of a place, whether it has the whole frame); (None, False): it has none."""
        room = int(self._rooms[place]) - 1
        return (room // 2, bool(room % 2)) if room >= 0 else (None, False)

    def _units_of(self, place: int) -> list[int]:
        unit, is_plain = self._room_of(place)
        if unit is None or (is_plain and unit % self._n_units):
            return []
        return list(range(unit, unit + self._n_units)) if is_plain else [unit]
