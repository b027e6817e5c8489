"""Agreement between the ranks of a gang: a plan is run by every rank or by none.

A scheduler that dies between two sends leaves a plan with some ranks only. A rank that ran it would wait in a collective
forever, or take part in the other ranks' next one. So each rank notes in a small file of shared memory what it has received,
and runs a plan once all ranks have it. If another rank has entered a later epoch without the plan, the plan is skipped: that
rank accepts no more plans of the earlier epoch, so every rank decides alike.

    received.<rank>   [_N_ENTRIES, 2] int64: (epoch id, step after the last plan received in it), as a ring; epoch ids rise
                      int64: 1 while the present step of this rank has no limit, else 0

Entries are written by one thread, each number as one aligned word: an epoch's last step before the next epoch's id. They are
read as a flat view of integers: numpy takes several times as long for so few numbers, and every step of a gang reads them.

A rank that compiles a kernel or a grammar within a step may take as long as it needs. The others wait for it in a collective,
and would count as hung. So each rank notes as well whether its step has a limit, and none has one while one of them has none.
"""

from __future__ import annotations

import mmap
import time
from array import array
from pathlib import Path
from typing import NewType

EpochId = NewType("EpochId", int)  # see `epoch_id`
_N_ENTRIES = 64
_UNLIMITED = 2 * _N_ENTRIES  # where it stands that the present step has no limit
_POLL_S = 0.00005
_EPOCH_BITS = 32
_NEVER = -1


def epoch_id(incarnation: int, epoch: int) -> EpochId:
    """One number for an epoch of one incarnation of the scheduler. It rises with the incarnation, and within it with the epoch.

    epoch: below 2^32.
    """
    return EpochId((incarnation << _EPOCH_BITS) + epoch)


class GangAgreement:
    """One rank's part in the agreement. The control task calls `note_epoch` and `note_plan`, the step thread calls `wait`."""

    def __init__(self, gang_dir: Path, rank: int, size: int) -> None:
        """Creates this rank's file in gang_dir, which all `size` ranks of the gang share. Raises: OSError."""
        self._paths = [gang_dir / f"received.{other}" for other in range(size)]
        unfinished = gang_dir / f"unfinished.{rank}"
        unfinished.write_bytes(array("q", [*[_NEVER] * (2 * _N_ENTRIES), 0]).tobytes())
        self._own = _map(unfinished, mmap.ACCESS_WRITE)
        unfinished.rename(self._paths[rank])  # other ranks see a complete file or none
        self._others = [other for other in range(size) if other != rank]
        self._tables: dict[int, memoryview[int]] = {}
        self._n_epochs = 0

    def note_epoch(self, epoch: EpochId) -> None:
        """Note that a Reset has come: this rank accepts no plan of an earlier epoch any more."""
        entry = 2 * (self._n_epochs % _N_ENTRIES)
        self._n_epochs += 1
        self._own[entry + 1] = _NEVER
        self._own[entry] = epoch

    def note_plan(self, end: int) -> None:
        """Note that a plan of the present epoch has come. end: the number of the step after its last one."""
        self._own[2 * ((self._n_epochs - 1) % _N_ENTRIES) + 1] = end

    def limit_s(self, busy_s: float, own_limit_s: float) -> float:
        """The limit of this rank's present step beside those of the other ranks: 0 (none) if one of theirs has none.

        busy_s: how long the step has been running, 0 while there is none. own_limit_s: its limit as far as this rank knows; the
        others are told whether it has one."""
        self._own[_UNLIMITED] = int(busy_s > 0.0 and own_limit_s == 0.0)
        tables = [table for other in self._others if (table := self._table(other)) is not None]
        return 0.0 if any(table[_UNLIMITED] for table in tables) else own_limit_s

    def wait(self, epoch: EpochId, end: int) -> bool:
        """Wait until every rank has the plan that ends before step `end` of an epoch.

        Returns False as soon as one rank can no longer receive it. There is no deadline: the wait is part of the step, and the
        supervisor limits how long a step may take.
        """
        return all(self._wait_for(other, epoch, end) for other in self._others)

    def _wait_for(self, other: int, epoch: EpochId, end: int) -> bool:
        while True:
            table = self._table(other)
            if table is not None:
                epochs = table[:_UNLIMITED:2].tolist()  # read before the step: the entry of an epoch that is over is final
                if epoch in epochs and table[2 * epochs.index(epoch) + 1] >= end:
                    return True
                if max(epochs) > epoch:
                    return False
            time.sleep(_POLL_S)

    def _table(self, other: int) -> memoryview[int] | None:
        if other not in self._tables and self._paths[other].exists():
            self._tables[other] = _map(self._paths[other], mmap.ACCESS_READ)
        return self._tables.get(other)


def _map(path: Path, access: int) -> memoryview[int]:
    with path.open("rb" if access == mmap.ACCESS_READ else "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=access)).cast("q")
