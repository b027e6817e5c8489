"""Pages that the host tier has overwritten come back from the disk. Whatever is lost there costs time, and never a token."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from actors.pages.host_ledger import HostLedger
from actors.pages.seal_table import private_table
from actors.pages.tier_loads import TierLoads
from actors.scheduler.planning.disk_tier import DiskTier
from actors.scheduler.planning.step_cost import StepCost
from gpu_workers.disk.place_tag import place_bytes
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages.caches.disk_moves import MoveDiskPages
from messages.caches.prefixes import ForgetPages
from messages.generation.sequences import Cancel
from messages.steps import PAGE_TOKENS
from tests.support.depth import DEPTH
from tests.support.disk.faulty_disk import DiskFault
from tests.support.disk.file_disk import FileDisk
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

_PAGE_BYTES, _PROMPT_PAGES, _N_HOST = 8 * PAGE_TOKENS, 10, 40
_WORKER = WorkerSettings(
    n_slots=4,
    max_length=512,
    max_step_tokens=64,
    hash_chain_pages=24,
    host_cache_bytes=_N_HOST * _PAGE_BYTES,
    disk_cache_bytes=500 * place_bytes(_PAGE_BYTES),
)
_PROMPTS = range(1, 11)  # of ten pages each: the host tier does not hold them all


def _prompt(seed: int) -> list[int]:
    return prompt_of(seed, _PROMPT_PAGES * PAGE_TOKENS + 1)


async def _bench(worker: WorkerSettings = _WORKER) -> SchedulerBench:
    """A scheduler that has computed all prompts, so that the first ones lie on the disk alone."""
    bench = SchedulerBench(MemoryCluster(), worker, tier_loads="always")
    await bench.begin()
    for seed in _PROMPTS:
        assert await _ask(bench, seed, seed) == 0
    return bench


async def _ask(bench: SchedulerBench, attempt: int, seed: int) -> int:
    """Ask for three tokens after the prompt with this seed. Returns the number of prompt tokens that were not computed."""
    bench.gateway.submit(attempt, _prompt(seed), 3)
    await bench.cluster.wait_until(lambda: attempt in bench.gateway.endings)
    want = hash_chain_tokens(_prompt(seed), 3, 0, bench.worker.hash_chain_vocabulary)
    assert bench.gateway.tokens[attempt] == want
    return bench.gateway.endings[attempt].n_cached


def _tier(bench: SchedulerBench) -> DiskTier:
    return bench.scheduler._gang.tier.disk


async def _close(bench: SchedulerBench) -> None:
    await bench.cluster.wait_until(lambda: not bench.scheduler._gang._is_dirty)  # the ledger agrees with all holders
    tier = bench.scheduler._gang.tier
    n_free = len(tier._host._free)
    assert n_free + tier.n_known == tier.n_places, "each place of the host tier is free or has a content"
    assert not tier.disk._disk._pinned
    assert not bench.cluster.faults
    await bench.cluster.close()


async def test_pages_come_back_from_the_disk() -> None:
    bench = await _bench()
    assert await _ask(bench, 20, 1) == _PROMPT_PAGES * PAGE_TOKENS
    counts = _tier(bench).counts
    assert (counts.read, counts.failed) == (_PROMPT_PAGES, 0)
    assert bench.gang.disk.n_read == _PROMPT_PAGES
    await _close(bench)


async def test_what_comes_from_the_disk_pushes_nothing_out_that_is_not_written() -> None:
    bench = await _bench()
    for number in range(3 * len(_PROMPTS)):
        assert await _ask(bench, 20 + number, _PROMPTS[number % len(_PROMPTS)]) == _PROMPT_PAGES * PAGE_TOKENS
    await _close(bench)


async def test_a_page_is_written_once() -> None:
    bench = await _bench()
    for attempt, seed in enumerate((1, 2, 3, 1, 2, 3), start=20):
        assert await _ask(bench, attempt, seed) == _PROMPT_PAGES * PAGE_TOKENS
    known = len(bench.gang.disk.contents)
    assert bench.gang.disk.n_written == known == _tier(bench).n_known
    await _close(bench)


async def test_pages_that_both_tiers_have_in_part_come_back_whole() -> None:
    bench = await _bench()
    tier = bench.scheduler._gang.tier
    sequence = _prompt(1)
    for index in (0, 3, 4):
        content = _entry(tier.disk._disk, _tokens(sequence, index))[1]
        place = tier._host.reserve()
        assert place is not None
        tier._host.fill(place, content)
        disk_place = tier.disk._disk.find(content)
        assert disk_place is not None
        assert bench.gang.engine.host_tier is not None
        _, check, page = bench.gang.disk.contents[disk_place]
        bench.gang.engine.host_tier.put(place, content[0], check, page)
    assert await _ask(bench, 20, 1) == _PROMPT_PAGES * PAGE_TOKENS
    assert _tier(bench).counts.read == _PROMPT_PAGES - 3
    await _close(bench)


def _entry(ledger: HostLedger, tokens: bytes) -> tuple[int, tuple[int, int, bytes]]:
    """(place, content) of a page with these tokens."""
    entries = ((place, ledger._table.content(place)) for place in ledger._entries.values())
    return next(entry for entry in entries if entry[1][2] == tokens)


def _tokens(prompt: list[int], index: int) -> bytes:
    return np.array(prompt[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS], "<i4").tobytes()


async def test_a_page_that_the_disk_has_lost_is_computed_with_those_after_it() -> None:
    bench = await _bench()
    disk = _tier(bench)._disk
    place, content = _entry(disk, _tokens(_prompt(1), 4))
    del bench.gang.disk.contents[place]
    assert await _ask(bench, 20, 1) == 4 * PAGE_TOKENS
    assert disk.find(content) is None
    assert _tier(bench).counts.failed == 1
    await _close(bench)


async def test_without_a_disk_no_message_is_sent() -> None:
    bench = await _bench(msgspec.structs.replace(_WORKER, disk_cache_bytes=0))
    assert await _ask(bench, 20, 1) == 0
    assert bench.gang.disk.n_written == 0
    await _close(bench)


async def test_a_reset_of_the_caches_forgets_what_is_on_the_disk() -> None:
    bench = await _bench()
    bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=1))
    await bench.cluster.settle(20)
    assert await _ask(bench, 20, 1) == 0
    assert _tier(bench).counts.read == 0
    await _close(bench)


async def test_a_read_without_an_answer_is_given_up() -> None:
    bench = await _bench()
    now_s = 1000.0
    tier = _tier(bench)
    tier._now_s = lambda: now_s
    bench.gang.loses_moves = True
    bench.gateway.submit(20, _prompt(1), 3)
    await bench.cluster.settle(50)
    bench.scheduler.tick()
    assert tier._reads, "it is not late yet"
    assert 20 not in bench.gateway.endings
    now_s += 60.0
    bench.scheduler.tick()
    await bench.cluster.settle(1)
    bench.scheduler.after_mail()
    await bench.cluster.wait_until(lambda: 20 in bench.gateway.endings)
    assert bench.gateway.endings[20].n_cached == 0
    assert not tier._reads
    await _close(bench)


async def test_a_gang_that_dies_while_pages_are_read_computes_them_or_reads_them_again() -> None:
    bench = await _bench()
    bench.gang.loses_moves = True
    bench.gateway.submit(20, _prompt(1), 3)
    await bench.cluster.settle(50)
    assert _tier(bench)._reads
    dead = bench.gang
    await bench.cluster.kill("worker/0.0")
    bench.gang = Gang(bench.cluster, bench.worker, dead.incarnation + 1, before=dead)
    bench.cluster.introduce(bench.gang)
    await bench.cluster.wait_until(lambda: 20 in bench.gateway.endings)
    await _close(bench)


def test_a_slow_disk_is_not_asked_and_later_asked_again() -> None:
    cost = StepCost()
    for _ in range(20):
        for n_tokens in (1, 64, 256):
            cost.learn(0, n_tokens, n_tokens * n_tokens // 2, 0.001 + n_tokens * 1e-5)
    assert cost.is_known
    tier = DiskTier(1, TierLoads.FASTER, cost, lambda places: None)
    tier.begin_epoch(1, HostLedger(private_table(1, 100)), 100)
    wanted = [(index, (index + 1, index, b"")) for index in range(10)]
    tier._read_cost.learn(20, cost.prompt_s(0, 10 * PAGE_TOKENS))
    assert tier._is_faster(wanted, 0.0)
    assert not tier._is_faster(wanted, cost.prompt_s(0, 10 * PAGE_TOKENS) / 18), "the load to the device counts as well"
    tier._read_cost.learn(1, 1.0)
    n_refused = 0
    while not tier._is_faster(wanted, 0.0):
        n_refused += 1
        assert n_refused < 1000
    assert n_refused > 50


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
        host_cache_bytes=rng.choice([3, 12, 30]) * _PAGE_BYTES,
        disk_cache_bytes=rng.choice([5, 50, 500]) * place_bytes(_PAGE_BYTES),
        max_lease_steps=rng.choice([1, 4]),
    )


async def _trouble(bench: SchedulerBench, rng: random.Random, attempt: int) -> None:
    """Perhaps a client leaves, the caches are reset, or the gang dies, with its memory and disk or without."""
    if rng.random() < 0.05:
        bench.gateway.mailbox.send("scheduler/0", Cancel(attempt=attempt, why="client_left"))
    if rng.random() < 0.01:
        bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=attempt))
    if rng.random() < 0.02:
        dead = bench.gang
        await bench.cluster.kill("worker/0.0")
        before = dead if rng.random() < 0.5 else None
        bench.gang = _FaultyDiskGang(bench.cluster, bench.worker, dead.incarnation + 1, before=before)
        bench.cluster.introduce(bench.gang)


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(8 * DEPTH))
async def test_random_conversations_with_faults_of_the_disk(seed: int) -> None:
    rng = _FaultyDiskGang.rng = random.Random(seed)
    bench = SchedulerBench(MemoryCluster(), _random_worker(rng), tier_loads="always", plans_in_flight=rng.choice([1, 2, 3]))
    bench.gang = _FaultyDiskGang(bench.cluster, bench.worker)
    await bench.begin()
    tier, now_s = bench.scheduler._gang.tier, 0.0
    tier._now_s = tier.disk._now_s = lambda: now_s
    talks = [prompt_of(number, rng.randint(1, 150)) for number in range(12)]
    jobs: dict[int, tuple[list[int], int]] = {}
    while len(bench.gateway.endings) < 120:
        if (attempt := len(jobs)) < 120:
            talk = rng.randrange(len(talks))
            jobs[attempt] = talks[talk], rng.randint(1, 20)
            talks[talk] = [*talks[talk], *prompt_of(attempt, rng.randint(1, 20))][:200]
            bench.gateway.submit(attempt, *jobs[attempt])
            await _trouble(bench, rng, attempt)
        await bench.cluster.settle(rng.choice([0, rng.randint(1, 60)]))
        now_s += 1.0
        bench.scheduler.tick()
        bench.scheduler.after_mail()
    for attempt, (prompt, n) in jobs.items():
        want, got = hash_chain_tokens(prompt, n, 0, bench.worker.hash_chain_vocabulary), bench.gateway.tokens[attempt]
        assert got == (want[: len(got)] if bench.gateway.endings[attempt].reason == "cancelled" else want)
    assert tier.disk.counts.written > 0
    assert tier.disk.counts.read > 0 or tier.disk.n_places == 5, "so few are overwritten before they are wanted"
    await _close(bench)


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(DEPTH))
async def test_10000_moves_of_a_file_with_faults_cost_no_token_and_no_request(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    worker = msgspec.structs.replace(_WORKER, disk_cache_bytes=200 * place_bytes(_PAGE_BYTES))
    bench = SchedulerBench(MemoryCluster(), worker, tier_loads="always")
    disk = bench.gang.disk = FileDisk(tmp_path / "pages", 200, rng, 0.01)
    await bench.begin()
    n_asked = 0
    while disk.n_written + disk.n_read + _tier(bench).counts.failed < 10_000:
        n_asked += 1
        await _ask(bench, n_asked, rng.randrange(30))
        disk.now_s += rng.choice((0.1, 30.0))
        if rng.random() < 0.01:
            incarnation = bench.gang.incarnation
            await bench.cluster.kill("worker/0.0")
            disk.die()
            bench.gang = Gang(bench.cluster, bench.worker, incarnation + 1)
            bench.gang.disk = disk
            bench.cluster.introduce(bench.gang)
    assert min(disk.n_read, disk.n_written) > 1000
    assert _tier(bench).counts.failed > 100
    assert set(disk.disk.counts) == set(DiskFault)
    await _close(bench)
