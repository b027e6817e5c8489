"""Which plans all ranks of a gang have received: a plan is run by every rank or by none.

A scheduler that dies between two sends leaves a plan with some ranks only; a rank that ran it would wait in a collective for
ever, or meet the others' next one there. So each rank notes in a small file of shared memory what it has received, and runs a
plan once all have it. When another rank has gone on to a later life without it, the plan is passed over: that rank takes no
mail of the earlier life any more, so every rank comes to the same answer.

    received.<rank>   [_LIVES, 2] int64: (life, step behind the last plan received in it), as a ring; lives rise

A life is one epoch of one scheduler's incarnation. Entries are written by one thread, each number one aligned word: a life's
last step before the next life.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

_LIVES = 64
_POLL_S = 0.00005
_EPOCH_BITS = 32
_NEVER = -1


def life_number(incarnation: int, epoch: int) -> int:
    """Rises with the scheduler's incarnation, and within it with the epoch."""
    return (incarnation << _EPOCH_BITS) + epoch


class GangAgreement:
    """One rank's view. `note_life` and `note_plan` are called by the control task, `wait` by the step thread."""

    def __init__(self, gang_dir: Path, rank: int, size: int) -> None:
        self._paths = [gang_dir / f"received.{other}" for other in range(size)]
        unfinished = gang_dir / f"unfinished.{rank}"
        np.full((_LIVES, 2), _NEVER, np.int64).tofile(unfinished)
        self._mine = _map(unfinished, "r+")
        unfinished.rename(self._paths[rank])  # whoever sees it sees it whole
        self._others = [other for other in range(size) if other != rank]
        self._tables: dict[int, np.ndarray] = {}
        self._n_lives = 0

    def note_life(self, life: int) -> None:
        """A Reset came: no plan of an earlier life will be taken any more."""
        entry = self._mine[self._n_lives % _LIVES]
        self._n_lives += 1
        entry[1] = _NEVER
        entry[0] = life

    def note_plan(self, end: int) -> None:
        """A plan of the present life came; `end` is the step behind its last one."""
        self._mine[(self._n_lives - 1) % _LIVES][1] = end

    def wait(self, life: int, end: int) -> bool:
        """Wait until every rank has this plan (True), or one never will (False). No deadline of its own: it is part of the
        step, and the supervisor knows how long a step may take."""
        return all(self._wait_for(other, life, end) for other in self._others)

    def _wait_for(self, other: int, life: int, end: int) -> bool:
        while True:
            table = self._table(other)
            if table is not None:
                newest = int(table[:, 0].max())  # read before the step: what stands in a life that has passed is final
                steps = table[table[:, 0] == life, 1]
                if len(steps) and int(steps[0]) >= end:
                    return True
                if newest > life:
                    return False
            time.sleep(_POLL_S)

    def _table(self, other: int) -> np.ndarray | None:
        if other not in self._tables and self._paths[other].exists():
            self._tables[other] = _map(self._paths[other], "r")
        return self._tables.get(other)


def _map(path: Path, mode: str) -> np.ndarray:
    return np.memmap(path, np.int64, mode, shape=(_LIVES, 2))  # pyright: ignore[reportCallIssue, reportArgumentType]
