"""The threads of one rank that move pages between its host tier and its disk file. Nobody else waits for the disk.

    step thread                            disk threads
    -----------                            ------------
    move(MoveDiskPages)       ----->       a page each at a time, in the order of `DiskQueue`
                              <-----       answer(DiskPagesMoved), once all pages of a message are read or have failed
    move(FindDiskPages)       ----->       tags of some places
                              <-----       answer(DiskPagesFound)
    clear()                   ----->       moves that were asked for are dropped

A disk that does not answer within `LIMIT_S` keeps these threads, and nothing else, and the tier rests after it has answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpu_workers.disk.disk_file import FileEnd
from gpu_workers.disk.disk_queue import LIMIT_S, Answer, Clear, DiskQueue, Job, Look, PageRead, PageWrite
from gpu_workers.disk.disk_work import DiskCounts, DiskWork
from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import MOST_FOUND, DiskMoves, DiskPagesFound, DiskPagesMoved, MoveDiskPages
from messages.wire.arrays import int32s, uint64s

N_THREADS = 4  # pages that the disk reads at once


class DiskThreads:
    """Moves pages by `work` to and from `host`, which has `n_places`. now_s: the monotonic clock."""

    def __init__(
        self,
        work: DiskWork,
        host: PagePlaces,
        n_places: int,
        n_disk_places: int,
        now_s: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._work, self._host = work, host
        self._queue = DiskQueue(n_places, n_disk_places, now_s)
        self._threads: list[threading.Thread] = []

    @property
    def counts(self) -> DiskCounts:
        """Pages that were moved, and that were not."""
        counts = self._work.counts
        return replace(counts, late=counts.late + self._queue.n_late)

    def start(self) -> None:
        """Start the threads. The file is opened for the first move."""
        self._queue.on_change = self._wake
        self._threads += [threading.Thread(target=self._run, name=f"disk {n}", daemon=True) for n in range(N_THREADS)]
        for thread in self._threads:
            thread.start()

    def move(self, moves: DiskMoves, answer: Answer) -> None:
        """Do these moves soon, or look soon at what the disk has. `answer` is called if there are pages to read, if all were
        forgotten, or if the disk could be looked at. Raises: ValueError for an unknown place."""
        if isinstance(moves, MoveDiskPages):
            self._queue.ask(moves, answer)
        else:
            self._queue.look(moves, answer)

    def clear(self) -> None:
        """Forget all contents, also those on their way. Waits for no disk."""
        self._queue.clear()

    def close(self, timeout_s: float, *, is_removed: bool = False) -> bool:
        """End the threads; what waits is not done. is_removed: with the file. Returns False if the disk still keeps a thread:
        then the file stays, and the next server does not trust it."""
        self._queue.close()
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(end_s - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in self._threads):
            return False
        self._end(is_removed)
        return True

    def _end(self, is_removed: bool) -> None:
        self._work.close(FileEnd.REMOVED if is_removed or self._queue.must_clear else FileEnd.IN_ORDER)

    def _wake(self) -> None:
        self._queue.lock.notify_all()

    def _run(self) -> None:
        queue = self._queue
        while not queue.is_closing:
            with queue.lock:
                while (job := queue.take()) is None and not queue.is_closing:
                    queue.lock.wait()
            if job is not None:
                self._do(job)

    def _do(self, job: Job) -> None:
        """Carry out what was taken, and rest if that took too long."""
        has_come = False
        try:
            has_come = self._move(job)
        finally:
            took_s = self._queue.age_s(job)
            if took_s > LIMIT_S:
                self._work.rest(f"the disk took {took_s:.1f} s")
            self._queue.done(job, has_come=has_come)

    def _move(self, job: Job) -> bool:
        """Returns True if a page has come to the host tier."""
        match job:
            case PageRead():

                def land(check: int, page: np.ndarray) -> bool:
                    return self._queue.put(job, self._host, check, page)

                return self._work.read(job.disk_place, job.content_hash, land)
            case PageWrite():
                self._work.write(job.place, job.disk_place, job.content)
            case Look():
                self._look(job)
            case Clear():
                if self._work.clear() and job.wanted is not None:
                    job.answer(DiskPagesMoved(epoch=job.wanted.epoch, number=job.wanted.number))
        return False

    def _look(self, look: Look) -> None:
        wanted = look.wanted
        looked = self._work.find(wanted.before, MOST_FOUND)
        if looked is None or not self._queue.is_of_now(look):
            return
        first, found = looked
        answer = DiskPagesFound(
            epoch=wanted.epoch,
            number=wanted.number,
            first=first,
            places=int32s([place for place, _ in found]),
            hashes=uint64s([content.hash for _, content in found]),
            parents=uint64s([content.parent for _, content in found]),
            tokens=np.frombuffer(b"".join(content.tokens for _, content in found), "<i4").astype(np.int32),
        )
        look.answer(answer)
