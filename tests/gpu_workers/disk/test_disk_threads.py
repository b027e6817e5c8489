"""Pages that went to the disk come back as they were, or not at all, whatever the disk does."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from gpu_workers.disk.disk_file import DiskFile, FileEnd
from gpu_workers.disk.disk_queue import LIMIT_S
from gpu_workers.disk.disk_threads import N_THREADS, DiskThreads
from gpu_workers.disk.disk_work import REST_S, DiskWork
from gpu_workers.disk.place_tag import Content
from gpu_workers.vault.host_pages import HostPages
from messages.caches.disk_moves import DiskPagesMoved, MoveDiskPages
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import DEPTH
from tests.support.disk.faulty_disk import DiskFault, FaultyDisk

_PAGE_BYTES, _N_PAGES, _N_PLACES, _N_DISK = 5000, 4, 6, 24
_DEADLINE_S = 60.0


class _Stage:
    """Pages, a host tier and a disk, with a clock of the test."""

    def __init__(self, folder: Path, rng: random.Random, probability: float = 0.0, *kinds: DiskFault) -> None:
        self.rng, self.now_s = rng, 0.0
        self.disk = FaultyDisk(rng, probability, kinds or tuple(DiskFault))
        self.pages = np.zeros((_N_PAGES, _PAGE_BYTES), np.uint8)
        self.host = HostPages(self.pages, _N_PLACES)
        self.warnings: list[str] = []
        self.folder = folder
        self.work = self.begin()

    def begin(self) -> DiskWork:
        return DiskWork(
            lambda is_own: self._open(), self.host, lambda event, **_: self.warnings.append(event), lambda: self.now_s
        )

    def _open(self) -> DiskFile:
        return DiskFile(self.folder / "pages", bytes(32), _PAGE_BYTES, _N_DISK, self.disk)

    def store(self, place: int, content_hash: int) -> None:
        """Let the host tier have this content, which follows from its hash."""
        self.pages[0] = np.frombuffer(content_of(content_hash), np.uint8)
        self.host.store(int32s([0]), int32s([place]), uint64s([content_hash]))

    def holds(self, place: int, content_hash: int) -> bool:
        """True if the place has this content; then it is right."""
        if self.host.load(int32s([place]), int32s([1]), uint64s([content_hash])):
            return False
        assert self.pages[1].tobytes() == content_of(content_hash)
        return True

    def read(self, disk_place: int, place: int, content_hash: int) -> bool:
        def land(check: int, page: np.ndarray) -> bool:
            self.host.put(place, content_hash, check, page)
            return True

        return self.work.read(disk_place, content_hash, land)


def content_of(content_hash: int) -> bytes:
    return random.Random(content_hash).randbytes(_PAGE_BYTES)


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_10000_random_moves_with_faults_give_the_content_or_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stage = _Stage(tmp_path, rng, 0.05)
    written: dict[int, int] = {}  # disk place: hash of what it should have
    n_good = n_bad = number = 0
    for _ in range(10_000):
        stage.now_s += rng.choice((0.0, 0.1, 2 * REST_S)) if rng.random() < 0.2 else 0.0
        match rng.random():
            case draw if draw < 0.45:
                number += 1
                place, disk_place = rng.randrange(_N_PLACES), rng.randrange(_N_DISK)
                stage.store(place, number)
                stage.work.write(place, disk_place, Content(number))
                written[disk_place] = number
            case draw if draw < 0.96:
                place, disk_place = rng.randrange(_N_PLACES), rng.randrange(_N_DISK)
                wanted = written.get(disk_place, number) if rng.random() < 0.9 else rng.randrange(1, number + 2)
                if stage.read(disk_place, place, wanted):
                    assert written[disk_place] == wanted
                    assert stage.holds(place, wanted)
                    n_good += 1
                else:
                    n_bad += 1
            case draw if draw < 0.99:  # the process dies, and the next one goes on
                stage.work.close(FileEnd.LEFT)
                stage.work = stage.begin()
            case _:
                stage.work.clear()
                written.clear()
    assert n_good > 500
    assert n_bad > 500
    assert set(stage.disk.counts) == set(DiskFault)


def test_a_full_disk_is_said_once_and_writes_go_on_later(tmp_path: Path) -> None:
    stage = _Stage(tmp_path, random.Random(1), 0.0, DiskFault.FULL)
    stage.store(0, 7)
    stage.work.write(0, 0, Content(7))
    stage.disk.probability = 1.0
    for _ in range(5):
        stage.work.write(0, 1, Content(7))
        stage.now_s += 0.6 * REST_S
    assert stage.warnings == ["no room on the disk for evicted pages"]
    assert stage.work.counts.full == 5
    assert stage.disk.counts[DiskFault.FULL] == 3, "most of them do not ask the disk"
    assert stage.read(0, 2, 7), "pages that are there are read while the disk is full"
    stage.disk.probability, stage.now_s = 0.0, stage.now_s + 2 * REST_S
    stage.work.write(0, 1, Content(7))
    assert stage.read(1, 3, 7)


def test_after_an_error_the_disk_rests_and_comes_back_with_its_pages(tmp_path: Path) -> None:
    stage = _Stage(tmp_path, random.Random(1), 0.0, DiskFault.ERROR)
    stage.store(0, 7)
    stage.work.write(0, 0, Content(7))
    stage.disk.probability = 1.0
    assert not stage.read(0, 1, 7)
    stage.disk.probability = 0.0
    assert not stage.read(0, 1, 7)
    assert stage.work.counts.late == 1
    stage.now_s += 2 * REST_S
    assert stage.read(0, 1, 7)
    assert stage.warnings == ["the disk tier is off for a while"]


def test_without_a_file_every_move_fails_and_a_later_one_succeeds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    stage = _Stage(tmp_path / "file", random.Random(1))
    stage.store(0, 7)
    stage.work.write(0, 0, Content(7))
    stage.folder, stage.now_s = tmp_path, 2 * REST_S
    stage.work.write(0, 0, Content(7))
    assert stage.read(0, 1, 7)
    assert len(stage.warnings) == 1


def test_a_place_that_was_overwritten_before_it_was_written_gives_nothing_and_keeps_its_content(tmp_path: Path) -> None:
    stage = _Stage(tmp_path, random.Random(1))
    stage.store(0, 8)
    stage.work.write(0, 0, Content(7))
    assert not stage.read(0, 1, 7)
    assert stage.holds(0, 8)


# -- the thread ---------------------------------------------------------------------------------------------------------


class _Answers:
    """The answers of a thread, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[DiskPagesMoved] = SimpleQueue()

    def __call__(self, moved: DiskPagesMoved) -> None:
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
def threaded(tmp_path: Path) -> tuple[_Stage, DiskThreads, _Answers]:
    stage = _Stage(tmp_path, random.Random(1))
    thread = DiskThreads(stage.work, stage.host, _N_PLACES, _N_DISK, lambda: stage.now_s)
    thread.start()
    return stage, thread, _Answers()


def _write(stage: _Stage, thread: DiskThreads, answers: _Answers) -> None:
    """Write content 7 from place 0 to place 0 of the disk, and wait until it is there."""
    stage.store(0, 7)
    thread.move(_moves(1, [(0, 0, 7)], []), answers)
    while True:  # a read waits for no write that was asked for before it
        thread.move(_moves(2, [], [(0, 1, 7)]), answers)
        if not len(answers.next().failed):
            return


def test_the_thread_moves_pages_and_says_which_have_failed(threaded: tuple[_Stage, DiskThreads, _Answers]) -> None:
    stage, thread, answers = threaded
    _write(stage, thread, answers)
    thread.move(_moves(3, [], [(0, 2, 7), (1, 3, 9), (0, 4, 7)]), answers)
    moved = answers.next()
    assert (moved.epoch, moved.number, moved.failed.tolist()) == (1, 3, [1])
    assert [stage.holds(place, 7) for place in (2, 3, 4)] == [True, False, True]
    assert thread.close(_DEADLINE_S, is_removed=True)
    assert not (stage.folder / "pages").exists()


def test_a_disk_that_hangs_keeps_nobody_and_is_off_for_a_while(threaded: tuple[_Stage, DiskThreads, _Answers]) -> None:
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
        ([(_N_PLACES, 0, 7)], [], "written_places"),
        ([(0, _N_DISK, 7)], [], "written_disk_places"),
        ([], [(-1, 0, 7)], "read_disk_places"),
        ([], [(0, -1, 7)], "read_places"),
    ],
)
def test_unknown_places_are_errors(
    threaded: tuple[_Stage, DiskThreads, _Answers],
    writes: list[tuple[int, int, int]],
    reads: list[tuple[int, int, int]],
    name: str,
) -> None:
    _, thread, answers = threaded
    with pytest.raises(ValueError, match=f"^{name}: expected numbers from 0 to"):
        thread.move(_moves(1, writes, reads), answers)


def test_a_page_that_comes_too_late_is_not_put_into_the_host_tier(threaded: tuple[_Stage, DiskThreads, _Answers]) -> None:
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


def test_what_was_asked_for_before_a_clear_is_dropped(threaded: tuple[_Stage, DiskThreads, _Answers]) -> None:
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
    stage, answers = _Stage(tmp_path, random.Random(1)), _Answers()
    disk = stage.disk = _MeetingDisk()
    thread = DiskThreads(stage.work, stage.host, _N_PLACES, _N_DISK, lambda: stage.now_s)
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


def test_the_last_write_to_a_place_is_the_one_that_stays(threaded: tuple[_Stage, DiskThreads, _Answers]) -> None:
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
    stage, answers = _Stage(tmp_path, rng, 0.01), _Answers()
    thread = DiskThreads(stage.work, stage.host, _N_PLACES, _N_DISK, lambda: stage.now_s)
    thread.start()
    written: dict[int, int] = {}  # disk place: hash of what it should have
    n_good = n_bad = 0
    for number in range(1, 2001):
        stage.now_s += rng.choice((0.1, 0.9 * LIMIT_S)) if rng.random() < 0.5 else 0.0
        writes = []
        for index, disk_place in enumerate(rng.sample(range(_N_DISK), 2)):
            written[disk_place] = 2 * number + index
            stage.store(index, written[disk_place])
            writes.append((index, disk_place, written[disk_place]))
        wanted = [(disk_place, 3 + index, written[disk_place]) for index, disk_place in enumerate(rng.sample(list(written), 2))]
        wanted.append((rng.randrange(_N_DISK), 5, rng.randrange(1, 2 * number + 2)))
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
