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
from messages.caches.disk_moves import MoveDiskPages
from messages.ids import STANDBY_SEAT, actor_name
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.steps import Reset
from messages.wire.arrays import int32s, uint64s
from tests.support.waiting import until
from tests.support.workers.worker_stage import SETTINGS

_HASH = 77
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
        read_disk_places=int32s([5] * len(read)),
        read_places=int32s(read),
        read_hashes=uint64s([_HASH] * len(read)),
    )


class _Rank:
    """A step thread with a disk. `answers`: how many pages of a message have failed, by its number."""

    def __init__(self, path: Path, settings: WorkerSettings = _TIERED) -> None:
        self.answers: dict[int, int] = {}
        self.engine, self.disk, self.faults = HashChainEngine(settings), RankDisk(path, settings), list[str]()
        events: Any = SimpleNamespace(
            on_loaded=lambda capacity: None,
            on_reset=lambda epoch: None,
            on_moved=lambda epoch, moved: self.answers.update({moved.number: len(moved.failed)}),
            on_fault=lambda doing, error: self.faults.append(str(error)),
        )
        self.steps = StepThread(lambda report: self.engine, events, disk=self.disk)
        self.steps.start()

    def submit(self, command: Reset | MoveDiskPages) -> None:
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
    assert not os.listdir(tmp_path)


async def test_suspect_memory_empties_the_disk(tmp_path: Path) -> None:
    rank = _Rank(tmp_path / "pages")
    rank.submit(Reset(epoch=1))
    await rank.write()
    assert await rank.read(2, 6)
    rank.submit(Reset(epoch=2, is_memory_suspect=True))
    assert not await rank.read(3, 7)


async def test_suspect_memory_of_the_process_before_empties_its_disk(tmp_path: Path) -> None:
    dead = _Rank(tmp_path / "pages")
    dead.submit(Reset(epoch=1))
    await dead.write()
    file = (tmp_path / "pages").read_bytes()
    assert dead.steps.stop(60.0)
    for is_suspect in (False, True):
        (tmp_path / "pages").write_bytes(file)
        rank = _Rank(tmp_path / "pages")
        rank.submit(Reset(epoch=1, is_memory_suspect=is_suspect))
        assert await rank.read(2, 6) is not is_suspect
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
    paths = [disk_of(spec, settings)._path for spec in specs]
    assert [path.name for path in paths] == ["worker-1.0.pages", "worker-1.0.pages", "worker-1.1.pages"]
