"""What the disk of one rank is to do, and in which order. It reads and writes nothing itself, and any thread may use it.

    clear     comes before all else, and runs alone
    reads     come next, several pages at a time: a sequence waits for them
    look      at what the disk has, when no read waits, one at a time
    writes    come when nothing else waits, one at a time, in the order in which they were asked for

No page is read while its place is written. A disk that has not answered for `LIMIT_S` is stuck: what is asked for meanwhile
fails at once. A page that arrives late, or after `clear`, is not put into the host tier.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from gpu_workers.disk.place_tag import Content
from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import DiskPagesFound, DiskPagesMoved, FindDiskPages, MoveDiskPages
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s

LIMIT_S = 4.0  # less than a scheduler waits for an answer
_MOST_WRITES = 16_384  # pages that wait; the oldest are dropped first, because their places are overwritten first
_MOST_READS = 64  # messages that wait
Answer = Callable[[DiskPagesMoved | DiskPagesFound], None]  # is called on any thread, and returns at once


@dataclass(eq=False)
class MessageReads:
    """The pages that one message wants."""

    moves: MoveDiskPages
    answer: Answer
    era: int
    began_s: float
    n_left: int  # pages that have neither come nor failed
    failed: list[int] = field(default_factory=list)
    first_s: float | None = None  # when its first page was begun


@dataclass(eq=False, frozen=True)
class PageRead:
    """Read a place of the disk to a place of the host tier."""

    reads: MessageReads
    index: int  # in the message
    disk_place: int
    place: int
    content_hash: int


@dataclass(eq=False, frozen=True)
class PageWrite:
    """Write a place of the host tier to a place of the disk."""

    place: int
    disk_place: int
    content: Content


@dataclass(eq=False, frozen=True)
class Look:
    """Find out what the disk has at some places."""

    wanted: FindDiskPages
    answer: Answer
    era: int


@dataclass(eq=False, frozen=True)
class Clear:
    """Forget all that the disk has."""

    wanted: MoveDiskPages | None  # None: nobody asks whether it is done
    answer: Answer


Job = PageRead | PageWrite | Look | Clear


class DiskQueue:
    """What waits and what is being done, for a host tier of `n_places` and a disk of `n_disk_places`. now_s: the monotonic
    clock. `on_change` is called, with the lock, when there may be something to do."""

    def __init__(self, n_places: int, n_disk_places: int, now_s: Callable[[], float]) -> None:
        self._n_places, self._n_disk_places, self._now_s = n_places, n_disk_places, now_s
        self.lock = threading.Condition()  # guards all below
        self.on_change: Callable[[], None] = lambda: None
        self._n_messages = 0  # that have pages to read
        self._reads: deque[PageRead] = deque()
        self._writes: deque[PageWrite] = deque()
        self._busy: dict[Job, float] = {}  # what is being done, and since when
        self._era = 0  # number of `clear`s
        self._clear: Clear | None = None  # is due
        self._look: Look | None = None  # the last one that was asked for
        self.is_closing = False
        self.n_late = 0  # pages that were given up without asking the disk

    def ask(self, moves: MoveDiskPages, answer: Answer) -> None:
        """Do these moves soon. `answer` is called if there are pages to read, or all are forgotten. Raises: ValueError for an
        unknown place."""
        self._check(moves)
        if moves.is_cleared:
            self.clear(moves, answer)
        n_reads, n_writes = len(moves.read_places), len(moves.written_places)
        with self.lock:
            if self._is_stuck() or self._n_messages >= _MOST_READS:
                self.n_late += n_reads + n_writes
                if n_reads:
                    answer(_answer_of(moves, list(range(n_reads)), 0.0))
                return
            self._writes.extend(_writes_of(moves))
            while len(self._writes) > _MOST_WRITES:
                self._writes.popleft()
                self.n_late += 1
            if n_reads:
                self._n_messages += 1
                self._reads.extend(_reads_of(MessageReads(moves, answer, self._era, self._now_s(), n_reads)))
            self.on_change()

    def look(self, wanted: FindDiskPages, answer: Answer) -> None:
        """Find out what the disk has. `answer` is called if it can be read."""
        with self.lock:
            if not self._is_stuck():
                self._look = Look(wanted, answer, self._era)
                self.on_change()

    def clear(self, wanted: MoveDiskPages | None = None, answer: Answer = lambda moved: None) -> None:
        """Forget all contents, also those on their way. Waits for no disk. wanted: who asks gets the answer that it is done."""
        with self.lock:
            self._era += 1
            self._clear = Clear(wanted, answer)
            self._writes.clear()
            self._look = None
            dropped, self._reads = self._reads, deque()
            for read in dropped:
                self._end_page(read, has_come=False)
            self.on_change()

    def close(self) -> None:
        """Nothing more is begun."""
        with self.lock:
            self.is_closing = True
            self.on_change()

    def take(self) -> Job | None:
        """What to do next, if there is something that may be begun now. `done` must be called for it."""
        with self.lock:
            job = None if self.is_closing else self._next()
            if job is not None:
                self._busy[job] = self._now_s()
                if isinstance(job, PageRead) and job.reads.first_s is None:
                    job.reads.first_s = self._now_s()
            return job

    def _next(self) -> Job | None:
        if self._clear is not None:
            clear, self._clear = (self._clear, None) if not self._busy else (None, self._clear)
            return clear
        if any(isinstance(job, Clear) for job in self._busy):
            return None
        written = next((job for job in self._busy if isinstance(job, PageWrite)), None)
        while self._reads:
            if self._now_s() - self._reads[0].reads.began_s > LIMIT_S:
                self.n_late += 1
                self._end_page(self._reads.popleft(), has_come=False)
            elif written is not None and written.disk_place == self._reads[0].disk_place:
                return None
            else:
                return self._reads.popleft()
        if self._look is not None and not any(isinstance(job, Look) for job in self._busy):
            look, self._look = self._look, None
            return look
        if written is None and self._writes and not self._is_read(self._writes[0].disk_place):
            return self._writes.popleft()
        return None

    def _is_read(self, disk_place: int) -> bool:
        return any(isinstance(job, PageRead) and job.disk_place == disk_place for job in self._busy)

    def put(self, read: PageRead, host: PagePlaces, check: int, page: np.ndarray) -> bool:
        """Give a page that was read to the host tier. Returns False if it comes too late."""
        with self.lock:
            is_wanted = read.reads.era == self._era and self._now_s() - read.reads.began_s <= LIMIT_S
            if is_wanted:
                host.put(read.place, read.content_hash, check, page)
            return is_wanted

    def is_of_now(self, look: Look) -> bool:
        """Nothing was forgotten since this was asked for."""
        with self.lock:
            return look.era == self._era

    @property
    def must_clear(self) -> bool:
        """Contents are to be forgotten, and are not yet."""
        return self._clear is not None

    def age_s(self, job: Job) -> float:
        """For how long this has been under way."""
        with self.lock:
            return self._now_s() - self._busy[job]

    def done(self, job: Job, *, has_come: bool = False) -> None:
        """It is over. has_come: the page is in the host tier."""
        with self.lock:
            del self._busy[job]
            if isinstance(job, PageRead):
                self._end_page(job, has_come=has_come)
            self.on_change()

    def _end_page(self, read: PageRead, *, has_come: bool) -> None:
        reads = read.reads
        reads.n_left -= 1
        if not has_come:
            reads.failed.append(read.index)
        if not reads.n_left:
            self._n_messages -= 1
            took_s = self._now_s() - reads.first_s if reads.first_s is not None else 0.0
            reads.answer(_answer_of(reads.moves, sorted(reads.failed), took_s))

    def _is_stuck(self) -> bool:
        return bool(self._busy) and self._now_s() - min(self._busy.values()) > LIMIT_S

    def _check(self, moves: MoveDiskPages) -> None:
        for name in ("written_places", "read_places", "written_disk_places", "read_disk_places"):
            numbers, n = getattr(moves, name), self._n_disk_places if "disk" in name else self._n_places
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
                raise ValueError(f"{name}: expected numbers from 0 to {n - 1}, got {numbers.min()} to {numbers.max()}")


def _writes_of(moves: MoveDiskPages) -> list[PageWrite]:
    columns = (moves.written_places, moves.written_disk_places, moves.written_hashes)
    writes = list(zip(*(column.tolist() for column in columns), strict=True))
    if len(moves.written_tokens) and len(moves.written_parents):
        parents, tokens = moves.written_parents.tolist(), moves.written_tokens.astype("<i4").reshape(-1, PAGE_TOKENS)
        named = zip(writes, parents, tokens, strict=True)
        contents = [Content(content_hash, parent, bytes(row)) for (_, _, content_hash), parent, row in named]
    else:
        contents = [Content(each[2]) for each in writes]
    return [PageWrite(place, disk_place, content) for (place, disk_place, _), content in zip(writes, contents, strict=True)]


def _reads_of(reads: MessageReads) -> Iterable[PageRead]:
    columns = (reads.moves.read_disk_places, reads.moves.read_places, reads.moves.read_hashes)
    wanted = zip(*(column.tolist() for column in columns), strict=True)
    return (PageRead(reads, index, *each) for index, each in enumerate(wanted))


def _answer_of(moves: MoveDiskPages, failed: list[int], read_s: float) -> DiskPagesMoved:
    return DiskPagesMoved(epoch=moves.epoch, number=moves.number, failed=int32s(failed), read_s=read_s)
