"""A disk tier of one rank with a real file, whose calls fail now and then. It moves pages at once."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpu_workers.disk.disk_file import DiskFile, FileEnd
from gpu_workers.disk.disk_work import DiskWork
from gpu_workers.disk.place_tag import Content
from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import DiskPagesMoved, MoveDiskPages
from messages.wire.arrays import int32s
from tests.support.disk.faulty_disk import FaultyDisk
from tests.support.disk.memory_disk import MemoryDisk


class FileDisk(MemoryDisk):
    """`now_s`: its clock, which a test sets. `disk`: has the faults."""

    def __init__(self, path: Path, n_places: int, rng: random.Random, probability: float) -> None:
        super().__init__()
        self._path, self._n_places = path, n_places
        self.disk, self.now_s = FaultyDisk(rng, probability), 0.0
        self._work: DiskWork | None = None

    def forget(self) -> None:
        if self._work is not None:
            self._work.clear()

    def move_pages(self, host: PagePlaces, moves: MoveDiskPages) -> DiskPagesMoved | None:
        if self._work is None:
            self._work = DiskWork(lambda is_own: self._open(host), host, lambda event, **_: None, lambda: self.now_s)
        writes = (moves.written_places, moves.written_disk_places, moves.written_hashes)
        before = replace(self._work.counts)
        for place, disk_place, content_hash in zip(*(column.tolist() for column in writes), strict=True):
            self._work.write(place, disk_place, Content(content_hash))
        reads, failed = (moves.read_disk_places, moves.read_places, moves.read_hashes), []
        for index, (disk_place, place, content_hash) in enumerate(zip(*(column.tolist() for column in reads), strict=True)):

            def land(check: int, page: np.ndarray, place: int = place, content_hash: int = content_hash) -> bool:
                host.put(place, content_hash, check, page)
                return True

            if not self._work.read(disk_place, content_hash, land):
                failed.append(index)
        self.n_written += self._work.counts.written - before.written
        self.n_read += self._work.counts.read - before.read
        moved = DiskPagesMoved(epoch=moves.epoch, number=moves.number, failed=int32s(failed), read_s=0.001 * len(reads[0]))
        return moved if len(reads[0]) else None

    def die(self) -> None:
        """The process of the rank dies: the next one opens the file."""
        if self._work is not None:
            self._work.close(FileEnd.LEFT)
            self._work = None

    def _open(self, host: PagePlaces) -> DiskFile:
        return DiskFile(self._path, bytes(32), host.page_bytes, self._n_places, self.disk)
