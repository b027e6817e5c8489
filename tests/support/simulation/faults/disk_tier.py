"""The disk tier of simulated ranks: the real one, with a real file in memory, but its threads and its faults are simulated.

An access takes some milliseconds, now and then seconds, and rarely longer than the rank waits. What the disk does is drawn from
numbers of its own, so that a seed without a disk tier is not changed by it.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_workers.disk import disk_file
from gpu_workers.disk.disk_queue import LIMIT_S, Job
from gpu_workers.disk.disk_threads import N_THREADS, DiskThreads
from gpu_workers.process import rank_disk
from tests.support.disk.faulty_disk import FaultyDisk

_ACCESS_S = (0.0002, 0.02)
_SLOW_S, _HANG_S = (0.1, LIMIT_S), (LIMIT_S, 30.0)
_HANG_SHARE = 0.1  # of the slow accesses
_BLOCK_BYTES = 4096


class SimulatedDiskThreads(DiskThreads):
    """Moves pages in virtual time."""

    disk: SimulatedDisk

    def start(self) -> None:
        """There are no threads."""
        self._loop, self._n_working = asyncio.get_running_loop(), 0
        self._queue.on_change = self._work_soon

    def close(self, timeout_s: float, *, is_removed: bool = False) -> bool:
        self._queue.close()
        if self._n_working:
            return False
        self._end(is_removed)
        return True

    def _work_soon(self) -> None:
        while self._n_working < N_THREADS and (job := self._queue.take()) is not None:
            self._n_working += 1
            self._loop.call_later(self.disk.access_s(), self._finish, job)

    def _finish(self, job: Job) -> None:
        self._n_working -= 1
        self._do(job)


class SimulatedDisk(FaultyDisk):
    """The disk below all ranks of one simulation. While `probability` is above 0, so many calls fail, and as many are slow."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"disk tier {seed}: accesses")
        super().__init__(self._chance, 0.0)

    def access_s(self) -> float:
        """How long the next access takes."""
        if self._chance.random() >= self.probability:
            return self._chance.uniform(*_ACCESS_S)
        return self._chance.uniform(*(_HANG_S if self._chance.random() < _HANG_SHARE else _SLOW_S))

    def harm_file(self, folder: Path) -> None:
        """Damage a file of a rank, shorten it, or remove it."""
        paths = sorted(folder.glob("*.pages")) if folder.is_dir() else []
        if not paths:
            return
        path = self._chance.choice(paths)
        n_blocks = path.stat().st_size // _BLOCK_BYTES
        match self._chance.randrange(3):
            case 0:
                path.unlink()
            case 1:
                os.truncate(path, _BLOCK_BYTES * self._chance.randrange(n_blocks + 1))
            case _:
                self._damage(path, n_blocks)

    def _damage(self, path: Path, n_blocks: int) -> None:
        with suppress(OSError), path.open("r+b") as raw:
            for _ in range(self._chance.randrange(1, 30) if n_blocks else 0):
                raw.seek(_BLOCK_BYTES * self._chance.randrange(n_blocks) + self._chance.randrange(256))
                raw.write(self._chance.randbytes(1))


def make_disks_virtual(patch: Callable[[Any, str, Any], None], seed: int) -> SimulatedDisk:
    """Replace threads and calls of the disk tier. `patch(object, name, value)` must undo itself after the simulation."""
    disk = SimulatedDiskThreads.disk = SimulatedDisk(seed)
    patch(rank_disk, "DiskThreads", SimulatedDiskThreads)
    patch(disk_file, "OsCalls", lambda: disk)
    return disk
