"""A scheduler adopts the pages that the scheduler before it has recorded: equal tokens after any deaths, and nothing adopted
from memory that may be damaged. The pages of the hash chain hold its state, so a page with another content than its record says
changes every token after it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from actors.pages.seal_table import SealTable, private_table
from actors.pages.tier_loads import TierLoads
from actors.scheduler.gang.seal_store import KeptTable
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages import steps
from messages.caches.prefixes import ForgetPages
from messages.lifecycle.lifecycle import Cause
from messages.steps import PAGE_TOKENS
from tests.support.depth import at_depth
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected, prompt_of

VAULT = SchedulerSettings(vault=True, tier_loads=TierLoads.ALWAYS)


class MemoryStore:
    """The seal tables of a replica, without a vault. As there, only the newest is kept."""

    def __init__(self) -> None:
        self.table: SealTable | None = None

    def left(self) -> SealTable | None:
        return self.table

    def open(self, generation: int, n_pages: int) -> SealTable:
        if self.table is None or (self.table.generation, self.table.n_pages) != (generation, n_pages):
            self.table = private_table(generation, n_pages)
        return self.table


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    stores = {"seal table": store, "host table": MemoryStore(), "disk table": MemoryStore()}
    monkeypatch.setattr(KeptTable, "left", lambda self: stores[self._key].left())
    monkeypatch.setattr(KeptTable, "open", lambda self, generation, n_pages: stores[self._key].open(generation, n_pages))
    return store


@pytest.fixture
async def cluster(store: MemoryStore) -> AsyncIterator[MemoryCluster]:
    cluster = MemoryCluster()
    yield cluster
    await cluster.close()


class SuspectingGang(Gang):
    """Takes new memory when its scheduler says that the old one is suspect, as a worker does."""

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, steps.Reset) and message.is_memory_suspect:
            self.memory_generation += 1000
            self.engine._pages[:] = 0xDEAD  # what a broken device may have left
        super().handle(sender, message)


async def begin(cluster: MemoryCluster) -> SchedulerBench:
    bench = SchedulerBench(cluster, vault=True)
    bench.gang.task.cancel()
    bench.gang = SuspectingGang(cluster, WORKER)
    await bench.begin()
    return bench


async def new_scheduler(cluster: MemoryCluster, incarnation: int) -> SchedulerActor:
    await cluster.kill("scheduler/0")
    scheduler = cluster.start(SchedulerActor, "scheduler/0", VAULT, incarnation)
    await cluster.wait_until(lambda: "scheduler/0" in cluster.up)
    return scheduler


async def test_a_new_scheduler_adopts_the_pages_of_the_last_one(cluster: MemoryCluster) -> None:
    bench = await begin(cluster)
    prefix = prompt_of(1, 160)
    bench.gateway.submit(1, [*prefix, 5], 20)
    await bench.ended(1)
    scheduler = await new_scheduler(cluster, 2)
    bench.gateway.submit(2, [*prefix, 6], 4)
    await bench.ended(2)
    assert bench.gateway.endings[2].n_cached == 160
    assert bench.gateway.tokens[2] == expected([*prefix, 6], 4)
    assert scheduler.statistics()["pages_adopted"] >= 10


async def test_a_new_scheduler_and_a_new_gang_with_the_same_memory_adopt_them_too(cluster: MemoryCluster) -> None:
    bench = await begin(cluster)
    prefix = prompt_of(1, 160)
    bench.gateway.submit(1, [*prefix, 5], 20)
    await bench.ended(1)
    await cluster.kill("worker/0.0")
    await new_scheduler(cluster, 2)
    cluster.introduce(SuspectingGang(cluster, WORKER, 2, before=bench.gang))
    bench.gateway.submit(2, [*prefix, 6], 4)
    await bench.ended(2)
    assert bench.gateway.endings[2].n_cached == 160


@pytest.mark.parametrize("cause", ["crashed", "faulted", "hung"])
@pytest.mark.parametrize("scheduler_dies", [False, True])
async def test_nothing_is_adopted_after_a_death_that_may_be_the_devices(
    cluster: MemoryCluster, store: MemoryStore, cause: Cause, scheduler_dies: bool
) -> None:
    bench = await begin(cluster)
    prefix = prompt_of(1, 160)
    bench.gateway.submit(1, [*prefix, 5], 4)
    await bench.ended(1)
    await cluster.kill("worker/0.0", cause)
    await cluster.settle(20)
    assert store.table is not None
    assert not len(store.table.read().pages)
    if scheduler_dies:
        await new_scheduler(cluster, 2)
    cluster.introduce(SuspectingGang(cluster, WORKER, 2, before=bench.gang))
    bench.gateway.submit(2, [*prefix, 6], 4)
    await bench.ended(2)
    assert bench.gateway.endings[2].n_cached == 0
    assert bench.gateway.tokens[2] == expected([*prefix, 6], 4)


async def test_memory_is_suspect_for_one_gang_only(cluster: MemoryCluster) -> None:
    bench = await begin(cluster)
    prefix = prompt_of(1, 160)
    await cluster.kill("worker/0.0", "crashed")
    second = SuspectingGang(cluster, WORKER, 2, before=bench.gang)
    cluster.introduce(second)
    bench.gateway.submit(1, [*prefix, 5], 4)
    await bench.ended(1)
    await cluster.kill("worker/0.0", "killed")
    third = SuspectingGang(cluster, WORKER, 3, before=second)
    cluster.introduce(third)
    bench.gateway.submit(2, [*prefix, 6], 4)
    await bench.ended(2)
    assert bench.gateway.endings[2].n_cached == 160
    assert third.memory_generation == second.memory_generation != bench.gang.memory_generation


class Jobs:
    """Answers that go on with another attempt after each death of the scheduler, as gateways do it."""

    def __init__(self, bench: SchedulerBench, rng: random.Random) -> None:
        self._gateway = bench.gateway
        shared = [rng.randrange(1000) for _ in range(100)]
        self._commands = [(self._prompt(rng, shared), rng.randint(1, 80)) for _ in range(24)]
        self._answers: list[list[int]] = [[] for _ in self._commands]
        self._job_of: dict[int, int] = {}

    def _prompt(self, rng: random.Random, shared: list[int]) -> list[int]:
        return [*shared[: rng.choice([0, 16, 50, 100])], *(rng.randrange(1000) for _ in range(rng.randint(1, 60)))]

    def submit(self) -> None:
        """Submit every job that has not ended, with the tokens that have come."""
        self._collect()
        for job in self.unfinished():
            prompt, n = self._commands[job]
            attempt = len(self._job_of) + 1
            self._job_of[attempt] = job
            self._gateway.submit(attempt, [*prompt, *self._answers[job]], n, n_prompt=len(prompt))

    def unfinished(self) -> list[int]:
        ended = {self._job_of[attempt] for attempt in self._gateway.endings}
        return [job for job in range(len(self._commands)) if job not in ended]

    def check(self) -> None:
        self._collect()
        for answer, (prompt, n) in zip(self._answers, self._commands, strict=True):
            assert answer[:n] == hash_chain_tokens(prompt, n, 0, 1000)

    def _collect(self) -> None:
        for attempt, job in self._job_of.items():
            ids = self._gateway.tokens[attempt]
            if ids:
                first = self._gateway.first_index[attempt]
                self._answers[job][first : first + len(ids)] = ids


def random_worker(rng: random.Random) -> WorkerSettings:
    return WorkerSettings(
        n_slots=rng.choice([2, 5]),
        max_length=256,
        max_step_tokens=rng.choice([16, 64]),
        hash_chain_pages=rng.choice([17, 40, 200]),
        hash_chain_vocabulary=1000,
        max_lease_steps=rng.choice([1, 4]),
        host_cache_bytes=rng.choice([0, 20, 200]) * 8 * PAGE_TOKENS,
    )


_TIERED = msgspec.structs.replace(WORKER, hash_chain_pages=24, host_cache_bytes=100 * 8 * PAGE_TOKENS)


async def _evict(cluster: MemoryCluster) -> SchedulerBench:
    """A server whose device has evicted the pages of prompt 1, which lie in the host tier."""
    bench = SchedulerBench(cluster, _TIERED, vault=True, tier_loads="always")
    bench.gang.task.cancel()
    bench.gang = SuspectingGang(cluster, _TIERED)
    await bench.begin()
    for number in (1, 2, 3, 4):
        bench.gateway.submit(number, prompt_of(number, 161), 4)
        await bench.ended(number)
    return bench


async def test_a_new_scheduler_knows_what_lies_in_the_host_tier(cluster: MemoryCluster) -> None:
    bench = await _evict(cluster)
    scheduler = await new_scheduler(cluster, 2)
    bench.gateway.submit(5, prompt_of(1, 161), 4)
    await bench.ended(5)
    assert bench.gateway.endings[5].n_cached == 160
    assert bench.gateway.tokens[5] == expected(prompt_of(1, 161), 4)
    assert (scheduler._gang.tier.counts.loaded, scheduler._gang.tier.counts.failed) == (10, 0)


@pytest.mark.parametrize("why", ["reset", "crashed", "other memory"])
async def test_a_new_scheduler_does_not_know_what_was_forgotten(cluster: MemoryCluster, why: str) -> None:
    bench = await _evict(cluster)
    if why == "reset":
        bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=1))
        await cluster.settle(20)
    else:
        await cluster.kill("worker/0.0", "crashed" if why == "crashed" else "killed")
        await cluster.settle(20)
    scheduler = await new_scheduler(cluster, 2)
    if why != "reset":
        before = bench.gang if why == "crashed" else None
        cluster.introduce(SuspectingGang(cluster, _TIERED, 2, before=before))
    bench.gateway.submit(5, prompt_of(1, 161), 4)
    await bench.ended(5)
    assert bench.gateway.endings[5].n_cached == 0
    assert bench.gateway.tokens[5] == expected(prompt_of(1, 161), 4)
    assert (scheduler._gang.tier.counts.loaded, scheduler._gang.tier.counts.failed) == (0, 0)


_SEEDS_THAT_ADOPT = range(6)  # in others everything may end before a death that leaves the memory valid


@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(at_depth(6)))
async def test_equal_tokens_after_random_deaths(seed: int, cluster: MemoryCluster) -> None:
    """Schedulers and gangs die at random points, alone and together, with page pressure and shared prefixes."""
    rng = random.Random(seed)
    worker = random_worker(rng)
    bench = SchedulerBench(cluster, worker, vault=True, tier_loads="always", plans_in_flight=rng.choice([1, 2, 3]))
    await bench.begin()
    jobs = Jobs(bench, rng)
    jobs.submit()
    schedulers, n_deaths = [bench.scheduler], 0
    while jobs.unfinished() and n_deaths < 14:
        await cluster.settle(rng.randint(1, 120))
        n_deaths += 1
        if rng.random() < 0.6:
            dead = cluster.scripted["worker/0.0"]
            assert isinstance(dead, Gang)
            await cluster.kill("worker/0.0")
            cluster.introduce(Gang(cluster, worker, dead.incarnation + 1, before=dead if rng.random() < 0.8 else None))
        if rng.random() < 0.6:
            schedulers.append(await new_scheduler(cluster, len(schedulers) + 1))
            jobs.submit()
    await cluster.wait_until(lambda: not jobs.unfinished())
    jobs.check()
    last = schedulers[-1]
    await cluster.wait_until(lambda: last._gang.is_alive and not last._gang._is_dirty)  # the audit has found every page
    assert last.statistics()["pages_held"] == 0
    if seed in _SEEDS_THAT_ADOPT:
        assert sum(scheduler._gang.n_adopted for scheduler in schedulers) > 0
    assert not cluster.faults


@pytest.mark.parametrize("n_prompt", [5, 40, 47, 48, 49])
async def test_a_sequence_goes_on_at_a_new_scheduler_with_one_token(cluster: MemoryCluster, n_prompt: int) -> None:
    """What was computed is not computed again, not even in the last page, which is partly filled."""
    bench = await begin(cluster)
    prompt = prompt_of(1, n_prompt)
    bench.gateway.submit(1, prompt, 100, group_tokens=1)
    await cluster.wait_until(lambda: len(bench.gateway.tokens.get(1, ())) >= 20)
    await cluster.kill("scheduler/0")
    seen = list(bench.gateway.tokens[1])
    n_plans = len(bench.gang.plans)
    cluster.start(SchedulerActor, "scheduler/0", VAULT, 2)
    await cluster.wait_until(lambda: "scheduler/0" in cluster.up)
    bench.gateway.submit(2, [*prompt, *seen], 100, n_prompt=n_prompt)
    await bench.ended(1)
    first = bench.gang.plans[n_plans]
    assert (first.row_starts.tolist(), first.row_counts.tolist()) == ([n_prompt + len(seen) - 1], [1])
    assert seen + bench.gateway.tokens[2] == expected(prompt, 100)
