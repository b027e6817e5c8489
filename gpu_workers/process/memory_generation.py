"""The memory generation of a gang: one rank, its reporter, reads which memory every rank has taken, from small files in the
gang's directory.

    memory.<rank>     two int64: the id of the epoch in which it was written, the number of the memory

Every rank writes its file when it begins an epoch. The reporter waits until each file is of its epoch or of a later one, whose
Reset it will then receive too.
"""

from __future__ import annotations

import struct
import time
from hashlib import blake2b
from pathlib import Path

from gpu_workers.process.gang_agreement import EpochId

_ENTRY = struct.Struct("<2q")
_POLL_S = 0.0005
_BITS = 53  # a memory generation fits a double, as all numbers of messages do


class MemoryGeneration:
    """One rank's part; `size`: ranks of the gang; `reporter`: the one that answers for it."""

    def __init__(self, gang_dir: Path, rank: int, size: int, reporter: int = 0) -> None:
        self._dir, self._rank, self._size, self._reporter = gang_dir, rank, size, reporter

    def agree(self, epoch: EpochId, number: int) -> int:
        """Note this rank's memory, and return the gang's generation if this is the reporter, else 0.

        The reporter waits for the others. There is no deadline: a rank that dies takes the gang with it. Raises: OSError."""
        if self._size > 1:
            unfinished = self._dir / f"memory-unfinished.{self._rank}"
            unfinished.write_bytes(_ENTRY.pack(epoch, number))
            unfinished.rename(self._path(self._rank))
        if self._rank != self._reporter:
            return 0
        numbers = [number if rank == self._rank else self._wait_for(rank, epoch) for rank in range(self._size)]
        digest = blake2b(struct.pack(f"<{self._size}q", *numbers), digest_size=8).digest()
        return (int.from_bytes(digest) >> (64 - _BITS)) | 1

    def _wait_for(self, rank: int, epoch: EpochId) -> int:
        while True:
            try:
                written, number = _ENTRY.unpack(self._path(rank).read_bytes())
                if written >= epoch:
                    return number
            except FileNotFoundError:
                pass
            time.sleep(_POLL_S)

    def _path(self, rank: int) -> Path:
        return self._dir / f"memory.{rank}"
