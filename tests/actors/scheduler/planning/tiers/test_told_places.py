"""The cache directory knows what a scheduler has in its host tier."""

from __future__ import annotations

import numpy as np

from actors.cache_directory.prefix_index import PrefixIndex
from actors.pages.chain_root import ROOT
from actors.pages.page_hash import page_hashes
from gpu_workers.settings import WorkerSettings
from messages.caches.prefixes import PagesDropped, PagesSealed
from messages.steps import PAGE_TOKENS
from tests.support.memory_cluster import MemoryCluster, ScriptedActor
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

_N_PAGES = 10  # of each prompt, and a token more: two of them fill the device
_WORKER = WorkerSettings(n_slots=4, max_length=512, max_step_tokens=64, hash_chain_pages=24, host_cache_bytes=12_800)


class _Directory(ScriptedActor):
    """The cache directory, with a real index."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster, "cache_directory/0")
        self.index = PrefixIndex(1000)

    def handle(self, sender: str, message: object) -> None:
        assert isinstance(message, PagesSealed | PagesDropped)
        hashes, number, in_tier = message.hashes.tolist(), int(message.number), message.in_tier
        if isinstance(message, PagesDropped):
            assert self.index.update(sender, number, [], hashes, in_tier=in_tier)
        elif message.snapshot:
            self.index.replace(sender, number, hashes)
        else:
            assert self.index.update(sender, number, hashes, [], in_tier=in_tier)

    def pages_of(self, prompt: list[int]) -> int:
        """What it would answer for the scheduler."""
        return self.index.match(page_hashes(np.array(prompt, np.int32), ROOT).tolist()).get("scheduler/0", 0)


async def test_pages_in_the_tier_count_less_until_they_are_back() -> None:
    bench = SchedulerBench(MemoryCluster(), _WORKER, tier_loads="always", tells_directory=True)
    await bench.begin()
    directory = _Directory(bench.cluster)
    bench.cluster.introduce(directory)
    prompts = [prompt_of(seed, _N_PAGES * PAGE_TOKENS + 1) for seed in range(5)]
    for attempt, prompt in enumerate(prompts[:4]):
        bench.gateway.submit(attempt, prompt, 3)
        await bench.ended(attempt + 1)
    await bench.cluster.wait_until(lambda: directory.pages_of(prompts[3]) == _N_PAGES)
    assert directory.pages_of(prompts[0]) == _N_PAGES * 3 // 4
    assert directory.pages_of(prompts[4]) == 0
    bench.gateway.submit(4, prompts[0], 3)
    await bench.cluster.wait_until(lambda: directory.pages_of(prompts[0]) == _N_PAGES)
    await bench.ended(5)
    assert not bench.cluster.faults
    await bench.cluster.close()
