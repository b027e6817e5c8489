"""Pages that went to the disk come back as they were, or not at all, whatever the disk does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpu_workers.disk.disk_file import FileEnd
from gpu_workers.disk.disk_work import REST_S
from gpu_workers.disk.place_tag import Content
from tests.support.depth import at_depth
from tests.support.disk.disk_stage import N_DISK, N_PLACES, DiskStage
from tests.support.disk.faulty_disk import DiskFault


@pytest.mark.parametrize("seed", range(at_depth(2)))
def test_10000_random_moves_with_faults_give_the_content_or_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stage = DiskStage(tmp_path, rng, 0.05)
    written: dict[int, int] = {}  # disk place: hash of what it should have
    n_good = n_bad = number = 0
    for _ in range(10_000):
        stage.now_s += rng.choice((0.0, 0.1, 2 * REST_S)) if rng.random() < 0.2 else 0.0
        match rng.random():
            case draw if draw < 0.45:
                number += 1
                place, disk_place = rng.randrange(N_PLACES), rng.randrange(N_DISK)
                stage.store(place, number)
                stage.work.write(place, disk_place, Content(number))
                written[disk_place] = number
            case draw if draw < 0.96:
                place, disk_place = rng.randrange(N_PLACES), rng.randrange(N_DISK)
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
    stage = DiskStage(tmp_path, random.Random(1), 0.0, DiskFault.FULL)
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
    stage = DiskStage(tmp_path, random.Random(1), 0.0, DiskFault.ERROR)
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
    stage = DiskStage(tmp_path / "file", random.Random(1))
    stage.store(0, 7)
    stage.work.write(0, 0, Content(7))
    stage.folder, stage.now_s = tmp_path, 2 * REST_S
    stage.work.write(0, 0, Content(7))
    assert stage.read(0, 1, 7)
    assert len(stage.warnings) == 1


def test_a_place_that_was_overwritten_before_it_was_written_gives_nothing_and_keeps_its_content(tmp_path: Path) -> None:
    stage = DiskStage(tmp_path, random.Random(1))
    stage.store(0, 8)
    stage.work.write(0, 0, Content(7))
    assert not stage.read(0, 1, 7)
    assert stage.holds(0, 8)
