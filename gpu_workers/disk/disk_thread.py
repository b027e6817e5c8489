"""The thread of one rank that moves pages between its host tier and its disk file. Nobody else waits for the disk.

    step thread                            disk thread
    -----------                            -----------
    move(MoveDiskPages)       ----->       reads first, then writes, a page at a time
                              <-----       answer(DiskPagesMoved), once all pages of a message are read or have failed
    clear()                   ----->       moves that were asked for are dropped

A disk that does not answer within `LIMIT_S` keeps this thread, and nothing else: what is asked for meanwhile fails at once, and
the tier rests after the disk has answered. A page that arrives late, or after `clear`, is not put into the host tier.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpu_workers.disk.disk_work import DiskCounts, DiskWork
from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import DiskPagesMoved, MoveDiskPages
from messages.wire.arrays import int32s

LIMIT_S = 4.0  # less than a scheduler waits for an answer
_MOST_WRITES = 16_384  # pages that wait; the oldest are dropped first, because their places are overwritten first
_MOST_READS = 64  # messages that wait
Answer = Callable[[DiskPagesMoved], None]  # is called on any thread


@dataclass(frozen=True)
class _Reads:
    """The pages that one message wants."""

    moves: MoveDiskPages
    answer: Answer
    era: int
    began_s: float


class DiskThread:
    """Moves pages by `work`, which only this thread uses after `start`, to and from `host`, which has `n_places`. now_s: the
    monotonic clock."""

    def __init__(
        self,
        work: DiskWork,
        host: PagePlaces,
        n_places: int,
        n_disk_places: int,
        now_s: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._work, self._host, self._now_s = work, host, now_s
        self._n_places, self._n_disk_places = n_places, n_disk_places
        self._changed = threading.Condition()  # guards all below
        self._reads: deque[_Reads] = deque()
        self._writes: deque[tuple[int, int, int]] = deque()  # place, disk place, hash
        self._era = 0  # number of `clear`s
        self._is_clear_due = self._is_closing = False
        self._busy_since_s: float | None = None  # when the present access to the disk began
        self._n_late = 0
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)

    @property
    def counts(self) -> DiskCounts:
        """Pages that were moved, and that were not."""
        counts = self._work.counts
        return DiskCounts(**{**vars(counts), "late": counts.late + self._n_late})

    def start(self) -> None:
        """Start the thread. The file is opened for the first move."""
        self._thread.start()

    def move(self, moves: MoveDiskPages, answer: Answer) -> None:
        """Do these moves soon. `answer` is called if there are pages to read. Raises: ValueError for an unknown place."""
        self._check(moves)
        writes = zip(
            moves.written_places.tolist(), moves.written_disk_places.tolist(), moves.written_hashes.tolist(), strict=True
        )
        n_reads = len(moves.read_places)
        with self._changed:
            is_refused = self._is_stuck() or len(self._reads) >= _MOST_READS
            if not is_refused:
                self._writes.extend(writes)
                while len(self._writes) > _MOST_WRITES:
                    self._writes.popleft()
                    self._n_late += 1
                if n_reads:
                    self._reads.append(_Reads(moves, answer, self._era, self._now_s()))
                self._changed.notify_all()
            else:
                self._n_late += n_reads + len(moves.written_places)
        if is_refused and n_reads:
            answer(_failed(moves, range(n_reads), 0.0))

    def clear(self) -> None:
        """Forget all contents, also those on their way. Waits for no disk."""
        with self._changed:
            self._era += 1
            self._is_clear_due = True
            self._writes.clear()
            dropped, self._reads = self._reads, deque()
            self._changed.notify_all()
        for reads in dropped:
            reads.answer(_failed(reads.moves, range(len(reads.moves.read_places)), 0.0))

    def close(self, timeout_s: float) -> bool:
        """End the thread and remove the file; what waits is not done. Returns False if the disk still keeps the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _check(self, moves: MoveDiskPages) -> None:
        for name in ("written_places", "read_places", "written_disk_places", "read_disk_places"):
            numbers, n = getattr(moves, name), self._n_disk_places if "disk" in name else self._n_places
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
                raise ValueError(f"{name}: expected numbers from 0 to {n - 1}, got {numbers.min()} to {numbers.max()}")

    def _is_stuck(self) -> bool:
        return self._busy_since_s is not None and self._now_s() - self._busy_since_s > LIMIT_S

    # -- on the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._next()) is not None:
            if isinstance(job, _Reads):
                self._read(job)
            elif job:
                self._access(lambda job=job: self._work.write(*job))
            else:
                self._access(self._work.clear)
        self._access(lambda: self._work.close(is_removed=True))

    def _next(self) -> _Reads | tuple[int, int, int] | tuple[()] | None:
        """What to do next: (): clear; None: end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or self._is_clear_due or self._reads or self._writes)
            if self._is_closing:
                return None
            if self._is_clear_due:
                self._is_clear_due = False
                return ()
            return self._reads.popleft() if self._reads else self._writes.popleft()

    def _access(self, use: Callable[[], object]) -> None:
        """Use the disk, and rest if that took too long."""
        with self._changed:
            began_s = self._busy_since_s = self._now_s()
        use()
        with self._changed:
            took_s = self._now_s() - began_s
            self._busy_since_s = None
        if took_s > LIMIT_S:
            self._work.rest(f"the disk took {took_s:.1f} s")

    def _read(self, reads: _Reads) -> None:
        moves, began_s, failed = reads.moves, self._now_s(), []
        wanted = zip(moves.read_disk_places.tolist(), moves.read_places.tolist(), moves.read_hashes.tolist(), strict=True)
        for index, (disk_place, place, content_hash) in enumerate(wanted):
            if not self._read_page(reads, disk_place, place, content_hash):
                failed.append(index)
        reads.answer(_failed(moves, failed, self._now_s() - began_s))

    def _read_page(self, reads: _Reads, disk_place: int, place: int, content_hash: int) -> bool:
        """Returns True if the page has come to its place of the host tier."""
        landed = False

        def land(check: int, page: np.ndarray) -> None:
            nonlocal landed
            with self._changed:
                landed = reads.era == self._era and self._now_s() - reads.began_s <= LIMIT_S
                if landed:
                    self._host.put(place, content_hash, check, page)

        if self._now_s() - reads.began_s > LIMIT_S:
            with self._changed:
                self._n_late += 1
            return False
        self._access(lambda: self._work.read(disk_place, content_hash, land))
        return landed


def _failed(moves: MoveDiskPages, failed: list[int] | range, read_s: float) -> DiskPagesMoved:
    return DiskPagesMoved(epoch=moves.epoch, number=moves.number, failed=int32s(list(failed)), read_s=read_s)
