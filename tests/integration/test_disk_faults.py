"""A scheduler and its requests with a disk that fails: no token is wrong, and no request is lost."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from gpu_workers.disk.place_tag import place_bytes
from gpu_workers.settings import WorkerSettings
from messages.caches.disk_moves import MoveDiskPages
from tests.support.depth import DEPTH, at_depth
from tests.support.disk.faulty_disk import DiskFault
from tests.support.disk.file_disk import FileDisk
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.conversations import Troubles, converse
from tests.support.scheduler.disk_bench import PAGE_BYTES, TIERED, ask, close, tier_of
from tests.support.scheduler.scheduler_bench import SchedulerBench


class _FaultyDiskGang(Gang):
    """Loses and damages some of what it is asked to move."""

    rng = random.Random(0)

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, MoveDiskPages):
            self.loses_moves = self.rng.random() < 0.02
            if self.disk.contents and self.rng.random() < 0.2:
                place = self.rng.choice(list(self.disk.contents))
                content_hash, check, page = self.disk.contents[place]
                page[self.rng.randrange(len(page))] ^= 1
                self.disk.contents[place] = (content_hash if self.rng.random() < 0.5 else 1), check, page
        super().handle(sender, message)
        self.loses_moves = False


def _random_worker(rng: random.Random) -> WorkerSettings:
    return WorkerSettings(
        n_slots=rng.choice([2, 5]),
        max_length=256,
        max_step_tokens=rng.choice([16, 64]),
        hash_chain_pages=rng.choice([17, 24, 40]),
        host_cache_bytes=rng.choice([3, 12, 30]) * PAGE_BYTES,
        disk_cache_bytes=rng.choice([5, 50, 500]) * place_bytes(PAGE_BYTES),
        max_lease_steps=rng.choice([1, 4]),
        host_cache_dtype=rng.choice(["same", "int4", "adaptive"]),
    )


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(at_depth(8)))
async def test_random_conversations_with_faults_of_the_disk(seed: int) -> None:
    rng = _FaultyDiskGang.rng = random.Random(seed)
    bench = SchedulerBench(MemoryCluster(), _random_worker(rng), tier_loads="always", plans_in_flight=rng.choice([1, 2, 3]))
    bench.gang = _FaultyDiskGang(bench.cluster, bench.worker)
    await bench.begin()
    tier, now_s = bench.scheduler._gang.tier, 0.0
    tier._now_s = tier.disk._now_s = lambda: now_s

    def pass_second() -> None:
        nonlocal now_s
        now_s += 1.0

    await converse(bench, rng, 12, 120, Troubles(_FaultyDiskGang, forgets=0.01, dies=0.02), pass_second)
    assert tier.disk.counts.written > 0
    assert tier.disk.counts.read > 0 or tier.disk.n_places == 5, "so few are overwritten before they are wanted"
    await close(bench)


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(DEPTH))
async def test_10000_moves_of_a_file_with_faults_cost_no_token_and_no_request(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    worker = msgspec.structs.replace(TIERED, disk_cache_bytes=200 * place_bytes(PAGE_BYTES))
    bench = SchedulerBench(MemoryCluster(), worker, tier_loads="always")
    disk = bench.gang.disk = FileDisk(tmp_path / "pages", 200, rng, 0.01)
    await bench.begin()
    n_asked = 0
    while disk.n_written + disk.n_read + tier_of(bench).counts.failed < 10_000:
        n_asked += 1
        await ask(bench, n_asked, rng.randrange(30))
        disk.now_s += rng.choice((0.1, 30.0))
        if rng.random() < 0.01:
            incarnation = bench.gang.incarnation
            await bench.cluster.kill("worker/0.0")
            disk.die()
            bench.gang = Gang(bench.cluster, bench.worker, incarnation + 1)
            bench.gang.disk = disk
            bench.cluster.introduce(bench.gang)
    assert min(disk.n_read, disk.n_written) > 1000
    assert tier_of(bench).counts.failed > 100
    assert set(disk.disk.counts) == set(DiskFault)
    await close(bench)
