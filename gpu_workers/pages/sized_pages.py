"""Places of a host tier on CPU cores whose number in use follows the load.

All places have addresses from the beginning. A place takes memory when a page is stored there, and the system is asked for it
first: a write for which it has none would end the process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from gpu_workers.vault.host_pages import HostPages, places_at
from gpu_workers.vault.host_region import HostRegion
from gpu_workers.vault.place_format import PlaceFormat
from gpu_workers.vault.returned_pages import return_pages

_LEFT_PART = 32  # one part in so many of the memory is left to others
_TOGETHER_BYTES = 16 << 20  # are asked for at once


def has_room(n_bytes: int, meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> bool:
    """True if the machine, and the container of this process, have `n_bytes` more and some for others. What cannot be read
    refuses nothing."""
    rooms = [(_of_machine(meminfo, "MemAvailable:"), _of_machine(meminfo, "MemTotal:"))]
    with suppress(OSError, ValueError):  # no such file, or "max"
        most = int((cgroup / "memory.max").read_text())
        rooms.append((most - int((cgroup / "memory.current").read_text()), most))
    return all(free < 0 or free - n_bytes >= total // _LEFT_PART for free, total in rooms)


def _of_machine(meminfo: Path, name: str) -> int:
    """A line of /proc/meminfo, in bytes; -1: there is none."""
    with suppress(OSError, ValueError, StopIteration):
        lines = meminfo.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
    return -1


class SizedHostPages(HostPages):
    """`n_places` places, of which those have memory at which pages were stored since they were returned."""

    def __init__(
        self,
        pages: np.ndarray,
        n_places: int,
        form: PlaceFormat | None = None,
        room: Callable[[int], bool] = has_room,
    ) -> None:
        """As `HostPages`. room: whether so many bytes more may be taken."""
        super().__init__(pages, n_places, form)
        assert isinstance(self.region, HostRegion)
        self._memory, self._n_places, self._room = self.region, n_places, room
        self._has_memory = np.zeros(n_places, bool)  # as far as this process knows
        self._allowed_bytes = 0  # that may be taken before `room` is asked again
        self._unstored: list[int] = []

    def return_places(self, places: np.ndarray) -> None:
        self.check_places(places)
        with self._lock:
            self._hashes[places], self._has_memory[places] = 0, False
            return_pages(self._memory, self.page_bytes, self._n_places, places, places_at(self._n_places))

    def take_unstored(self) -> list[int]:
        with self._lock:
            unstored, self._unstored = self._unstored, []
        return unstored

    def _fill(self, place: int, content_hash: int, check: int, page: np.ndarray) -> None:
        if self._has_memory[place] or self._take_memory(place):
            super()._fill(place, content_hash, check, page)

    def _take_memory(self, place: int) -> bool:
        """Memory for a place. False: there is none, and the place is empty."""
        first_byte = places_at(self._n_places) + place * self.page_bytes
        with self._lock:
            if self._allowed_bytes < self.page_bytes:
                asked_bytes = max(_TOGETHER_BYTES, self.page_bytes)
                self._allowed_bytes = asked_bytes if self._room(asked_bytes) else 0
            is_taken = self._allowed_bytes >= self.page_bytes and self._memory.touch(first_byte, self.page_bytes)
            if is_taken:
                self._allowed_bytes -= self.page_bytes
                self._has_memory[place] = True
            else:
                self._hashes[place] = 0
                self._unstored.append(place)
        return is_taken
