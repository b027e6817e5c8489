"""The pages of an adaptive host tier that are as they are, in the order in which they were used. Copies nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import numpy as np


class PlainPages:
    """Places of pages that are not compressed. The time at which each was used last, a count of uses, lies in `used`: the
    memory of the tier, which outlives this process."""

    def __init__(self, used: np.ndarray) -> None:
        """used: uint64 [n_places]."""
        self._used = used
        self._places: OrderedDict[int, None] = OrderedDict()  # the coldest first
        self._now = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, place: int) -> bool:
        return place in self._places

    def __iter__(self) -> Iterator[int]:
        """The places, the coldest first."""
        return iter(self._places)

    @property
    def coldest(self) -> int:
        """The place that was not used for longest. There must be one."""
        return next(iter(self._places))

    def adopt(self, places: Iterable[int]) -> None:
        """These are the places, as another process has left them: in the order of `used`."""
        self._now = int(self._used.max(initial=0))
        self._places = OrderedDict.fromkeys(sorted(places, key=lambda place: int(self._used[place])))

    def add(self, place: int) -> None:
        """The page of this place is as it is, and was used now."""
        self._places[place] = None
        self.touch(place)

    def remove(self, place: int) -> None:
        """The page of this place is compressed, or needed no more. Does nothing for one that is not here."""
        self._places.pop(place, None)

    def touch(self, place: int) -> None:
        """A page was used: if it is as it is, it is the last to be compressed."""
        if place in self._places:
            self._places.move_to_end(place)
            self._now += 1
            self._used[place] = self._now
