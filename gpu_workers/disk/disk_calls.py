"""The calls with which a rank reads and writes its disk file, as a seam: tests put faults there."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np


class DiskCalls(Protocol):
    """Each may take as long as the disk does. Raises: OSError."""

    def read(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        """Read bytes at an offset into a buffer of bytes. Returns how many there were: fewer than asked for at the end of the
        file, or when the disk gives no more."""
        ...

    def write(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        """Write a buffer of bytes at an offset. Returns how many were written."""
        ...


class OsCalls(DiskCalls):
    """The calls of the operating system. They give up the interpreter lock while they wait."""

    def read(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        return os.preadv(descriptor, [buffer.data], offset)

    def write(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        return os.pwritev(descriptor, [buffer.data], offset)
