"""The threads of the disk: they wait for it, and nobody else does."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from gpu_workers.disk.disk_queue import LIMIT_S
from gpu_workers.disk.disk_threads import N_THREADS, DiskThreads
from gpu_workers.disk.disk_work import REST_S
from messages.caches.disk_moves import DiskPagesFound, DiskPagesMoved, MoveDiskPages
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import DEPTH
from tests.support.disk.disk_stage import N_DISK, N_PLACES, DiskStage
from tests.support.disk.faulty_disk import FaultyDisk

_DEADLINE_S = 60.0


class _Answers:
    """The answers of a thread, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[DiskPagesMoved] = SimpleQueue()

    def __call__(self, moved: DiskPagesMoved | DiskPagesFound) -> None:
        assert isinstance(moved, DiskPagesMoved)
        self._queue.put(moved)

    def next(self) -> DiskPagesMoved:
        return self._queue.get(timeout=_DEADLINE_S)

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()


def _moves(number: int, writes: list[tuple[int, int, int]], reads: list[tuple[int, int, int]]) -> MoveDiskPages:
    """writes: place, disk place, hash; reads: disk place, place, hash."""
    return MoveDiskPages(
        epoch=1,
        number=number,
        written_places=int32s([write[0] for write in writes]),
        written_disk_places=int32s([write[1] for write in writes]),
        written_hashes=uint64s([write[2] for write in writes]),
        read_disk_places=int32s([read[0] for read in reads]),
        read_places=int32s([read[1] for read in reads]),
        read_hashes=uint64s([read[2] for read in reads]),
    )


@pytest.fixture
def threaded(tmp_path: Path) -> tuple[DiskStage, DiskThreads, _Answers]:
    stage = DiskStage(tmp_path, random.Random(1))
    thread = DiskThreads(stage.work, stage.host, N_PLACES, N_DISK, lambda: stage.now_s)
    thread.start()
    return stage, thread, _Answers()


def _write(stage: DiskStage, thread: DiskThreads, answers: _Answers) -> None:
    """Write content 7 from place 0 to place 0 of the disk, and wait until it is there."""
    stage.store(0, 7)
    thread.move(_moves(1, [(0, 0, 7)], []), answers)
    while True:  # a read waits for no write that was asked for before it
        thread.move(_moves(2, [], [(0, 1, 7)]), answers)
        if not len(answers.next().failed):
            return


def test_the_thread_moves_pages_and_says_which_have_failed(threaded: tuple[DiskStage, DiskThreads, _Answers]) -> None:
    stage, thread, answers = threaded
    _write(stage, thread, answers)
    thread.move(_moves(3, [], [(0, 2, 7), (1, 3, 9), (0, 4, 7)]), answers)
    moved = answers.next()
    assert (moved.epoch, moved.number, moved.failed.tolist()) == (1, 3, [1])
    assert [stage.holds(place, 7) for place in (2, 3, 4)] == [True, False, True]
    assert thread.close(_DEADLINE_S, is_removed=True)
    assert not (stage.folder / "pages").exists()


def test_a_disk_that_hangs_keeps_nobody_and_is_off_for_a_while(threaded: tuple[DiskStage, DiskThreads, _Answers]) -> None:
    stage, thread, answers = threaded
    _write(stage, thread, answers)
    stage.disk.hang()
    thread.move(_moves(3, [], [(0, 2, 7)]), answers)
    assert stage.disk.hangs.wait(_DEADLINE_S)
    stage.now_s += 2 * LIMIT_S
    thread.move(_moves(4, [], [(0, 3, 7)]), answers)
    assert answers.next().number == 4, "it is refused at once"
    assert not thread.close(0.0)
    assert answers.is_empty
    stage.disk.let_go()
    assert thread.close(_DEADLINE_S)


@pytest.mark.parametrize(
    ("writes", "reads", "name"),
    [
        ([(N_PLACES, 0, 7)], [], "written_places"),
        ([(0, N_DISK, 7)], [], "written_disk_places"),
        ([], [(-1, 0, 7)], "read_disk_places"),
        ([], [(0, -1, 7)], "read_places"),
    ],
)
def test_unknown_places_are_errors(
    threaded: tuple[DiskStage, DiskThreads, _Answers],
    writes: list[tuple[int, int, int]],
    reads: list[tuple[int, int, int]],
    name: str,
) -> None:
    _, thread, answers = threaded
    with pytest.raises(ValueError, match=f"^{name}: expected numbers from 0 to"):
        thread.move(_moves(1, writes, reads), answers)


def test_a_page_that_comes_too_late_is_not_put_into_the_host_tier(threaded: tuple[DiskStage, DiskThreads, _Answers]) -> None:
    stage, thread, answers = threaded
    _write(stage, thread, answers)
    stage.disk.hang()
    thread.move(_moves(3, [], [(0, 2, 7)]), answers)
    assert stage.disk.hangs.wait(_DEADLINE_S)
    stage.now_s += 2 * LIMIT_S
    stage.store(2, 8)
    stage.disk.let_go()
    moved = answers.next()
    assert (moved.number, moved.failed.tolist()) == (3, [0])
    assert stage.holds(2, 8)
    thread.move(_moves(4, [], [(0, 3, 7)]), answers)
    assert answers.next().failed.tolist() == [0], "the disk rests"
    stage.now_s += 2 * REST_S
    thread.move(_moves(5, [], [(0, 3, 7)]), answers)
    assert answers.next().failed.tolist() == []
    assert stage.warnings == ["the disk tier is off for a while"]


def test_what_was_asked_for_before_a_clear_is_dropped(threaded: tuple[DiskStage, DiskThreads, _Answers]) -> None:
    stage, thread, answers = threaded
    _write(stage, thread, answers)
    stage.disk.hang()
    thread.move(_moves(3, [], [(0, 2, 7)]), answers)
    assert stage.disk.hangs.wait(_DEADLINE_S)
    thread.move(_moves(4, [], [(0, 3, 7)]), answers)
    thread.clear()
    assert answers.next().number == 4
    stage.disk.let_go()
    moved = answers.next()
    assert (moved.number, moved.failed.tolist()) == (3, [0])
    assert not stage.holds(2, 7)
    thread.move(_moves(5, [], [(0, 3, 7)]), answers)
    assert answers.next().failed.tolist() == [0]
    assert thread.close(_DEADLINE_S)


class _MeetingDisk(FaultyDisk):
    """A read of a page returns when `barrier` reads have come. The largest number of writes at once is counted."""

    def __init__(self) -> None:
        super().__init__(random.Random(1), 0.0)
        self.barrier: threading.Barrier | None = None
        self.n_writing = self.most_writing = 0

    def read(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        if self.barrier is not None:
            self.barrier.wait(_DEADLINE_S)
        return super().read(descriptor, buffer, offset)

    def write(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
        self.n_writing += 1
        self.most_writing = max(self.most_writing, self.n_writing)
        try:
            return super().write(descriptor, buffer, offset)
        finally:
            self.n_writing -= 1


def test_several_pages_are_read_at_once_and_one_is_written(tmp_path: Path) -> None:
    stage, answers = DiskStage(tmp_path, random.Random(1)), _Answers()
    disk = stage.disk = _MeetingDisk()
    thread = DiskThreads(stage.work, stage.host, N_PLACES, N_DISK, lambda: stage.now_s)
    thread.start()
    for place in range(N_THREADS):
        stage.store(place, 7 + place)
    thread.move(_moves(1, [(place, place, 7 + place) for place in range(N_THREADS)], []), answers)
    number = 1
    while thread.counts.written < N_THREADS:  # a read waits for no write
        number += 1
        thread.move(_moves(number, [], [(0, 5, 1)]), answers)
        answers.next()
    disk.barrier = threading.Barrier(N_THREADS)
    thread.move(_moves(100, [], [(place, place, 7 + place) for place in range(N_THREADS)]), answers)
    assert answers.next().failed.tolist() == []
    assert disk.most_writing == 1
    assert thread.close(_DEADLINE_S)


def test_the_last_write_to_a_place_is_the_one_that_stays(threaded: tuple[DiskStage, DiskThreads, _Answers]) -> None:
    stage, thread, answers = threaded
    _write(stage, thread, answers)
    stage.disk.hang()
    for number in range(8, 12):
        stage.store(number % 4, number)
        thread.move(_moves(number, [(number % 4, 0, number)], []), answers)
    assert stage.disk.hangs.wait(_DEADLINE_S)
    stage.disk.let_go()
    number, found = 100, False
    while not found:
        thread.move(_moves(number, [], [(0, 5, 11)]), answers)
        found, number = not len(answers.next().failed), number + 1
    assert stage.holds(5, 11)
    assert thread.close(_DEADLINE_S)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DEPTH))
def test_10000_random_moves_by_several_threads_give_the_content_or_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stage, answers = DiskStage(tmp_path, rng, 0.01), _Answers()
    thread = DiskThreads(stage.work, stage.host, N_PLACES, N_DISK, lambda: stage.now_s)
    thread.start()
    written: dict[int, int] = {}  # disk place: hash of what it should have
    n_good = n_bad = 0
    for number in range(1, 2001):
        stage.now_s += rng.choice((0.1, 0.9 * LIMIT_S)) if rng.random() < 0.5 else 0.0
        writes = []
        for index, disk_place in enumerate(rng.sample(range(N_DISK), 2)):
            written[disk_place] = 2 * number + index
            stage.store(index, written[disk_place])
            writes.append((index, disk_place, written[disk_place]))
        wanted = [(disk_place, 3 + index, written[disk_place]) for index, disk_place in enumerate(rng.sample(list(written), 2))]
        wanted.append((rng.randrange(N_DISK), 5, rng.randrange(1, 2 * number + 2)))
        thread.move(_moves(number, writes, wanted), answers)
        answer = answers.next()
        assert answer.number == number
        failed = set(answer.failed.tolist())
        n_bad += len(failed)
        for index, (_, place, content_hash) in enumerate(wanted):
            if index not in failed:
                assert stage.holds(place, content_hash)
                n_good += 1
        if rng.random() < 0.005:
            thread.clear()
            written.clear()
    assert thread.close(_DEADLINE_S)
    assert answers.is_empty, "each message has one answer"
    assert min(n_good, n_bad) > 50, "how many depends on when the threads run"
    assert thread.counts.failed > 50
    assert len(stage.work._pages) <= N_THREADS
    assert not thread._queue._busy
