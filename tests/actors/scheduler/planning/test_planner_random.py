"""The scheduler under random loads, page pressure, deaths of the gang and cancellations: every answer equals the oracle's."""

from __future__ import annotations

import asyncio
import random

import pytest

from actors.pages.eviction.choice import EvictionName
from actors.scheduler.sequences.policy import PolicyName
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages.generation.sequences import Cancel
from tests.support.depth import at_depth
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.random_terms import random_terms
from tests.support.scheduler.scheduler_bench import SchedulerBench

pytestmark = pytest.mark.slow


def _worker(rng: random.Random) -> WorkerSettings:
    return WorkerSettings(
        n_slots=rng.choice([2, 5, 16]),
        max_length=256,
        max_step_tokens=rng.choice([16, 33, 128]),
        hash_chain_pages=rng.choice([17, 40, 200]),
        hash_chain_vocabulary=rng.choice([2, 1000]),
        max_lease_steps=rng.choice([1, 4]),
    )


def gang_of(cluster: MemoryCluster) -> Gang:
    gang = cluster.scripted["worker/0.0"]
    assert isinstance(gang, Gang)
    return gang


@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(at_depth(12)))
async def test_random_load(seed: int) -> None:
    rng = random.Random(seed)
    worker = _worker(rng)
    cluster = MemoryCluster()
    bench = SchedulerBench(cluster, worker, **_settings(rng))
    await bench.begin()
    shared = [rng.randrange(worker.hash_chain_vocabulary) for _ in range(100)]
    jobs = {}
    for attempt in range(60):
        prompt = shared[: rng.choice([0, 16, 50, 100])] + [
            rng.randrange(worker.hash_chain_vocabulary) for _ in range(rng.randint(1, 60))
        ]
        if jobs and rng.random() < 0.3:
            prompt = jobs[rng.randrange(attempt)][0]
        jobs[attempt] = (prompt, rng.randint(1, 90))
        bench.gateway.submit(attempt, *jobs[attempt], speculation=rng.random() < 0.5, **random_terms(rng))
        if rng.random() < 0.1:
            bench.gateway.mailbox.send("scheduler/0", Cancel(attempt=attempt, why="client_left"))
        if rng.random() < 0.2:
            await cluster.settle(rng.randint(1, 60))
        if rng.random() < 0.04:
            dead = gang_of(cluster)
            await cluster.kill("worker/0.0")
            cluster.introduce(Gang(cluster, worker, dead.incarnation + 1, before=dead if rng.random() < 0.5 else None))
    await bench.ended(60)
    for attempt, (prompt, n) in jobs.items():
        want = hash_chain_tokens(prompt, n, 0, worker.hash_chain_vocabulary)
        got = bench.gateway.tokens[attempt]
        if bench.gateway.endings[attempt].reason == "cancelled":
            want = want[: len(got)]
        assert got == want
    await cluster.wait_until(
        lambda: not bench.scheduler._gang._is_dirty
    )  # the idle audit has found ledger and holders in agreement
    assert not cluster.faults
    await cluster.close()
    await asyncio.sleep(0)


def _settings(rng: random.Random) -> dict:
    settings = {
        "plans_in_flight": rng.choice([1, 2, 3]),
        "prefix_reuse": rng.random() < 0.8,
        "eviction": rng.choice([name.value for name in EvictionName]),
        "policy": rng.choice([name.value for name in PolicyName]),
        "urgent_step_s": rng.choice([0.0, 1e-6]),
        "pp": rng.choice([1, 1, 2, 4]),
    }
    SchedulerSettings(**settings)
    return settings
