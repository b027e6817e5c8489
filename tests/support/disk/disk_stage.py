"""Pages, a host tier and a disk with faults, for tests of what moves pages between the last two."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from gpu_workers.disk.disk_file import DiskFile
from gpu_workers.disk.disk_work import DiskWork
from gpu_workers.vault.host_pages import HostPages
from messages.wire.arrays import int32s, uint64s
from tests.support.disk.faulty_disk import DiskFault, FaultyDisk

PAGE_BYTES, N_PAGES, N_PLACES, N_DISK = 5000, 4, 6, 24


class DiskStage:
    """Pages, a host tier and a disk, with a clock of the test."""

    def __init__(self, folder: Path, rng: random.Random, probability: float = 0.0, *kinds: DiskFault) -> None:
        self.rng, self.now_s = rng, 0.0
        self.disk = FaultyDisk(rng, probability, kinds or tuple(DiskFault))
        self.pages = np.zeros((N_PAGES, PAGE_BYTES), np.uint8)
        self.host = HostPages(self.pages, N_PLACES)
        self.warnings: list[str] = []
        self.folder = folder
        self.work = self.begin()

    def begin(self) -> DiskWork:
        return DiskWork(
            lambda is_own: self._open(), self.host, lambda event, **_: self.warnings.append(event), lambda: self.now_s
        )

    def _open(self) -> DiskFile:
        return DiskFile(self.folder / "pages", bytes(32), PAGE_BYTES, N_DISK, self.disk)

    def store(self, place: int, content_hash: int) -> None:
        """Let the host tier have this content, which follows from its hash."""
        self.pages[0] = np.frombuffer(content_of(content_hash), np.uint8)
        self.host.store(int32s([0]), int32s([place]), uint64s([content_hash]))

    def holds(self, place: int, content_hash: int) -> bool:
        """True if the place has this content; then it is right."""
        if self.host.load(int32s([place]), int32s([1]), uint64s([content_hash])):
            return False
        assert self.pages[1].tobytes() == content_of(content_hash)
        return True

    def read(self, disk_place: int, place: int, content_hash: int) -> bool:
        def land(check: int, page: np.ndarray) -> bool:
            self.host.put(place, content_hash, check, page)
            return True

        return self.work.read(disk_place, content_hash, land)


def content_of(content_hash: int) -> bytes:
    return random.Random(content_hash).randbytes(PAGE_BYTES)
