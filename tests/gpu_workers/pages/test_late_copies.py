"""The scheduler's moves in their real order, at a gang whose copies run late beside the plans, as on a GPU: every token is
right, and no load fails while nothing is lost."""

from __future__ import annotations

import random

import pytest

from actors.scheduler.planning.load_cost import LoadCost
from actors.scheduler.planning.tiers import stores_ahead
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages.caches.page_moves import MOST_MOVED
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from messages.steps import PAGE_TOKENS
from tests.support.depth import at_depth
from tests.support.memory_cluster import MemoryCluster
from tests.support.pages.late_gang import LateGang
from tests.support.scheduler.conversations import Troubles, converse
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

_PAGE_BYTES = 8 * PAGE_TOKENS


async def _bench(rng: random.Random, n_places: int) -> SchedulerBench:
    worker = WorkerSettings(
        n_slots=rng.choice([2, 5]), max_length=256, max_step_tokens=rng.choice([16, 64]),
        hash_chain_pages=rng.choice([24, 40]), host_cache_bytes=n_places * _PAGE_BYTES, max_lease_steps=rng.choice([1, 4]),
        host_cache_dtype=rng.choice(["same", "int4"]),
    )  # fmt: skip
    bench = SchedulerBench(MemoryCluster(), worker, tier_loads="always", plans_in_flight=rng.choice([1, 2, 3]))
    LateGang.rng = rng
    bench.gang = LateGang(bench.cluster, worker)
    await bench.begin()
    return bench


@pytest.mark.parametrize("seed", range(at_depth(4)))
async def test_no_load_fails_while_nothing_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(LoadCost, "most_pages", rng.choice([1, 2, 5, MOST_MOVED]))
    monkeypatch.setattr(stores_ahead, "_LOOK_S", rng.choice([0.0, 0.1]))
    bench = await _bench(rng, 120)
    prompts = {attempt: prompt_of(rng.randrange(10), 16 * rng.randint(1, 10) + 1) for attempt in range(100)}
    for attempt, prompt in prompts.items():
        bench.gateway.submit(attempt, prompt, 3)
        await bench.cluster.settle(rng.randint(0, 40))
    await bench.ended(len(prompts))
    for attempt, prompt in prompts.items():
        assert bench.gateway.tokens[attempt] == hash_chain_tokens(prompt, 3, 0, HASH_CHAIN_VOCABULARY)
    counts = bench.scheduler._gang.tier.counts
    assert counts.loaded > 50
    assert counts.failed == 0
    assert not bench.cluster.faults
    await bench.cluster.close()


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(at_depth(8)))
async def test_random_conversations_with_deaths_and_resets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(LoadCost, "most_pages", rng.choice([1, 2, 5, MOST_MOVED]))
    monkeypatch.setattr(stores_ahead, "_LOOK_S", rng.choice([0.0, 0.1]))
    bench = await _bench(rng, rng.choice([3, 30, 300]))
    await converse(bench, rng, 8, 80, Troubles(LateGang, forgets=0.02, dies=0.03), lambda: None)
    assert bench.scheduler._gang.tier.counts.stored > 0
    assert not bench.cluster.faults
    await bench.cluster.close()
