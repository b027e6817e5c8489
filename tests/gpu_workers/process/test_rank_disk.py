"""The disk tier of a rank, by its step thread: moves between host and disk, a suspect memory, the end of the process."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gpu_workers.disk.place_tag import place_bytes
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.gang_agreement import epoch_id
from gpu_workers.process.rank_disk import RankDisk, disk_of
from gpu_workers.process.step_thread import StepThread
from gpu_workers.settings import WorkerSettings
from messages.caches.disk_moves import DiskMoves, DiskPagesFound, DiskPagesMoved, FindDiskPages, MoveDiskPages
from messages.ids import STANDBY_SEAT, actor_name
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.steps import Reset
from messages.wire.arrays import int32s, uint64s
from tests.support.waiting import until
from tests.support.workers.worker_stage import SETTINGS

_HASH = 77
_TOKENS = list(range(16))
_SPEC = {
    "incarnation": 1,
    "endpoint": "",
    "supervisor_endpoint": "",
    "supervisor_incarnation": 1,
    "log_format": "json",
    "log_level": "info",
    "settings": msgspec.Raw(b"{}"),
}
_TIERED = msgspec.structs.replace(SETTINGS, host_cache_bytes=4096, disk_cache_bytes=10 * place_bytes(128))


def _moves(number: int, *, writes: bool = False, read_place: int | None = None) -> MoveDiskPages:
    """Write place 3 of the host tier to place 5 of the disk, or read that into a place."""
    written, read = [3] * writes, [] if read_place is None else [read_place]
    return MoveDiskPages(
        epoch=1,
        number=number,
        written_places=int32s(written),
        written_disk_places=int32s([5] * len(written)),
        written_hashes=uint64s([_HASH] * len(written)),
        written_parents=uint64s([8] * len(written)),
        written_tokens=int32s(_TOKENS * len(written)),
        read_disk_places=int32s([5] * len(read)),
        read_places=int32s(read),
        read_hashes=uint64s([_HASH] * len(read)),
    )


class _Rank:
    """A step thread with a disk. `answers`: how many pages of a message have failed, by its number."""

    def __init__(self, path: Path, settings: WorkerSettings = _TIERED) -> None:
        self.answers: dict[int, int] = {}
        self.found: list[DiskPagesFound] = []
        self.engine, self.disk, self.faults = HashChainEngine(settings), RankDisk(path, settings), list[str]()
        events: Any = SimpleNamespace(
            on_loaded=lambda capacity: None,
            on_reset=lambda epoch: None,
            on_moved=lambda epoch, moved: self._moved(moved),
            on_fault=lambda doing, error: self.faults.append(str(error)),
        )
        self.steps = StepThread(lambda report: self.engine, events, disk=self.disk)
        self.steps.start()

    def _moved(self, moved: DiskPagesMoved | DiskPagesFound) -> None:
        if isinstance(moved, DiskPagesFound):
            self.found.append(moved)
        else:
            self.answers[moved.number] = len(moved.failed)

    def submit(self, command: Reset | DiskMoves) -> None:
        self.steps.submit(epoch_id(1, 1), command)

    async def read(self, number: int, place: int) -> bool:
        """Returns True if the page has come."""
        self.submit(_moves(number, read_place=place))
        await until(lambda: number in self.answers)
        return not self.answers[number]

    async def write(self) -> np.ndarray:
        """Write a page to the disk, wait until it is there, and return it."""
        page = np.arange(128, dtype=np.uint8)
        assert self.engine.host_tier is not None
        self.engine.host_tier.put(3, _HASH, 0x24650D57, page)
        self.submit(_moves(1, writes=True))
        number = 100
        while not await self.read(number, 4):  # a read waits for no write
            number += 1
        return page


async def test_a_page_goes_to_the_disk_and_comes_back(tmp_path: Path) -> None:
    rank = _Rank(tmp_path / "pages")
    rank.submit(Reset(epoch=1))
    page, found = await rank.write(), np.zeros(128, np.uint8)
    assert rank.engine.host_tier is not None
    assert rank.engine.host_tier.take(4, _HASH, found) == 0x24650D57
    assert found.tolist() == page.tolist()
    registry = CollectorRegistry()
    registry.register(rank.disk)
    assert b'tardigrade_worker_disk_pages_total{outcome="written"} 1.0' in generate_latest(registry)
    assert rank.steps.stop(60.0)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_file_stays_for_the_next_server_if_it_should(tmp_path: Path, is_kept: bool) -> None:
    rank = _Rank(tmp_path / "pages", msgspec.structs.replace(_TIERED, disk_cache_kept=is_kept))
    rank.submit(Reset(epoch=1))
    await rank.write()
    assert rank.steps.stop(60.0)
    assert (tmp_path / "pages").exists() is is_kept
    rank = _Rank(tmp_path / "pages")
    rank.submit(Reset(epoch=1))
    rank.submit(FindDiskPages(epoch=1, number=50, before=10))
    await until(lambda: bool(rank.found))
    assert [(one.first, one.places.tolist(), one.hashes.tolist()) for one in rank.found] == [
        (0, [5], [_HASH]) if is_kept else (0, [], [])
    ]
    assert [one.tokens.tolist() for one in rank.found] == [_TOKENS if is_kept else []]
    assert await rank.read(2, 6) is is_kept
    assert rank.steps.stop(60.0)


async def test_what_a_scheduler_orders_to_forget_is_not_found_by_the_next_server(tmp_path: Path) -> None:
    rank = _Rank(tmp_path / "pages")
    rank.submit(Reset(epoch=1))
    await rank.write()
    rank.submit(msgspec.structs.replace(_moves(60), is_cleared=True))
    await until(lambda: 60 in rank.answers)
    assert rank.steps.stop(60.0)
    rank = _Rank(tmp_path / "pages")
    rank.submit(Reset(epoch=1))
    assert not await rank.read(2, 6)
    assert rank.steps.stop(60.0)


def test_a_rank_without_a_disk_tier_removes_the_file_of_an_earlier_server(tmp_path: Path) -> None:
    spec = msgspec.convert({"name": actor_name("worker", 0, 0), "run_dir": str(tmp_path), **_SPEC}, SpawnSpec)
    for settings in (_TIERED, msgspec.structs.replace(_TIERED, disk_cache_bytes=0)):
        (tmp_path / "worker-0.0.pages").touch()
        disk_of(spec, settings, None)
        assert (tmp_path / "worker-0.0.pages").exists() is bool(settings.disk_cache_bytes)


async def test_suspect_memory_empties_the_disk(tmp_path: Path) -> None:
    rank = _Rank(tmp_path / "pages")
    rank.submit(Reset(epoch=1))
    await rank.write()
    assert await rank.read(2, 6)
    rank.submit(Reset(epoch=2, is_memory_suspect=True))
    assert not await rank.read(3, 7)


async def test_a_file_whose_process_has_not_ended_in_order_is_used_if_somebody_vouches_for_it(tmp_path: Path) -> None:
    dead = _Rank(tmp_path / "pages")
    dead.submit(Reset(epoch=1))
    await dead.write()
    file = (tmp_path / "pages").read_bytes()
    assert dead.steps.stop(60.0)
    for generation, is_suspect, is_kept in ((0, False, False), (7, False, True), (7, True, False)):
        (tmp_path / "pages").write_bytes(file)
        rank = _Rank(tmp_path / "pages")
        rank.submit(Reset(epoch=1, memory_generation=generation, is_memory_suspect=is_suspect))
        assert await rank.read(2, 6) is is_kept
        assert rank.steps.stop(60.0)


async def test_a_rank_that_is_not_asked_opens_no_file(tmp_path: Path) -> None:
    rank = _Rank(tmp_path / "pages")
    rank.submit(Reset(epoch=1))
    await until(lambda: rank.steps.is_idle)
    assert not os.listdir(tmp_path)
    assert rank.steps.stop(60.0)


@pytest.mark.parametrize("changes", [{"host_cache_bytes": 0}, {"disk_cache_bytes": 0}])
async def test_moves_without_tiers_are_a_fault(tmp_path: Path, changes: dict[str, int]) -> None:
    rank = _Rank(tmp_path / "pages", msgspec.structs.replace(_TIERED, **changes))
    rank.submit(_moves(1, read_place=0))
    await until(lambda: bool(rank.faults))
    assert rank.faults[0].startswith("moves to a disk: expected a host tier and places on the disk")


def test_both_seats_of_a_rank_use_one_file_and_ranks_have_their_own(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(_TIERED, disk_cache_dir=str(tmp_path))
    names = [actor_name("worker", 1, 0), actor_name("worker", 1, 0, STANDBY_SEAT), actor_name("worker", 1, 1)]
    specs = [msgspec.convert({"name": name, "run_dir": "/r", **_SPEC}, SpawnSpec) for name in names]
    paths = [disk_of(spec, settings, None)._path for spec in specs]
    assert [path.name for path in paths] == ["worker-1.0.pages", "worker-1.0.pages", "worker-1.1.pages"]
