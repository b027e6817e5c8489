"""A disk with faults: full, short reads, flipped bits, errors, and calls that do not return until they are let go."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter
from enum import Enum

import numpy as np

from gpu_workers.disk.disk_calls import OsCalls

_DEADLINE_S = 60.0


class DiskFault(Enum):
    """What the disk does instead of what it is asked for."""

    FULL = "full"
    SHORT_WRITE = "short write"
    SHORT_READ = "short read"
    BIT_FLIP = "bit flip"  # in what is read
    LOST_WRITE = "lost write"  # that was acknowledged
    ERROR = "error"


class FaultyDisk(OsCalls):
    """Faults with this probability for each call, drawn from `rng`. `counts` has those that have happened."""

    def __init__(self, rng: random.Random, probability: float, kinds: tuple[DiskFault, ...] = tuple(DiskFault)) -> None:
        self._rng, self.probability, self._kinds = rng, probability, kinds
        self.counts: Counter[DiskFault] = Counter()
        self._may_go = threading.Event()
        self._may_go.set()
        self.hangs = threading.Event()  # a call waits to be let go

    def hang(self) -> None:
        """Let no call return from now on."""
        self._may_go.clear()

    def let_go(self) -> None:
        """End the hang."""
        self._may_go.set()

    def read(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        self._wait()
        fault = self._draw(DiskFault.SHORT_READ, DiskFault.BIT_FLIP, DiskFault.ERROR)
        n_read = super().read(descriptor, buffer, offset)
        if fault is DiskFault.SHORT_READ:
            return n_read // 2
        if fault is DiskFault.BIT_FLIP:
            buffer[self._rng.randrange(len(buffer))] ^= 1 << self._rng.randrange(8)
        return n_read

    def write(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        self._wait()
        fault = self._draw(DiskFault.FULL, DiskFault.SHORT_WRITE, DiskFault.LOST_WRITE, DiskFault.ERROR)
        if fault is DiskFault.FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault is DiskFault.SHORT_WRITE:
            return super().write(descriptor, buffer[: len(buffer) // 8192 * 4096], offset)
        return len(buffer) if fault is DiskFault.LOST_WRITE else super().write(descriptor, buffer, offset)

    def _wait(self) -> None:
        if not self._may_go.is_set():
            self.hangs.set()
            assert self._may_go.wait(_DEADLINE_S), "nobody has let the disk go"

    def _draw(self, *possible: DiskFault) -> DiskFault | None:
        kinds = [kind for kind in possible if kind in self._kinds]
        if not kinds or self._rng.random() >= self.probability:
            return None
        fault = self._rng.choice(kinds)
        self.counts[fault] += 1
        if fault is DiskFault.ERROR:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return fault
