"""A scheduler whose gang has a small device, a small host tier and a disk behind it."""

from __future__ import annotations

from actors.scheduler.planning.disk_tier import DiskTier
from gpu_workers.disk.place_tag import place_bytes
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages.steps import PAGE_TOKENS
from tests.support.memory_cluster import MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

PAGE_BYTES, PROMPT_PAGES = 8 * PAGE_TOKENS, 10
TIERED = WorkerSettings(
    n_slots=4,
    max_length=512,
    max_step_tokens=64,
    hash_chain_pages=24,
    host_cache_bytes=40 * PAGE_BYTES,
    disk_cache_bytes=500 * place_bytes(PAGE_BYTES),
)
PROMPTS = range(1, 11)  # of ten pages each: the host tier does not hold them all


def prompt(seed: int) -> list[int]:
    """The prompt with this seed."""
    return prompt_of(seed, PROMPT_PAGES * PAGE_TOKENS + 1)


async def full_bench(worker: WorkerSettings = TIERED) -> SchedulerBench:
    """A scheduler that has computed all prompts, so that the first ones lie on the disk alone."""
    bench = SchedulerBench(MemoryCluster(), worker, tier_loads="always")
    await bench.begin()
    for seed in PROMPTS:
        assert await ask(bench, seed, seed) == 0
    return bench


async def ask(bench: SchedulerBench, attempt: int, seed: int) -> int:
    """Ask for three tokens after the prompt with this seed. Returns the number of prompt tokens that were not computed."""
    bench.gateway.submit(attempt, prompt(seed), 3)
    await bench.cluster.wait_until(lambda: attempt in bench.gateway.endings)
    want = hash_chain_tokens(prompt(seed), 3, 0, bench.worker.hash_chain_vocabulary)
    assert bench.gateway.tokens[attempt] == want
    return bench.gateway.endings[attempt].n_cached


def tier_of(bench: SchedulerBench) -> DiskTier:
    """The scheduler's disk tier."""
    return bench.scheduler._gang.tier.disk


async def close(bench: SchedulerBench) -> None:
    """End the scheduler, whose ledgers must be right."""
    await bench.cluster.wait_until(lambda: not bench.scheduler._gang._is_dirty)  # the ledger agrees with all holders
    tier = bench.scheduler._gang.tier
    n_free = len(tier.contents._free)
    assert n_free + len(tier.contents) == tier.n_places, "each place of the host tier is free or has a content"
    assert not tier.disk._disk._n_pins
    assert not bench.cluster.faults
    await bench.cluster.close()
