"""A caller whose cached pages are bounded does not push out those of the others."""

from __future__ import annotations

import msgspec
import pytest

from messages.steps import PAGE_TOKENS
from tests.support.memory_cluster import MemoryCluster
from tests.support.scheduler import disk_bench
from tests.support.scheduler.scheduler_bench import SchedulerBench, expected, prompt_of


@pytest.mark.parametrize("share", [1.0, 0.25])
async def test_a_flood_of_one_caller_leaves_the_prefix_of_another_if_it_is_bounded(
    cluster: MemoryCluster, share: float
) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    prefix = prompt_of(1, 320)
    bench.gateway.submit(1, [*prefix, 5], 4, cache_scope=b"quiet")
    await bench.ended(1)
    for number in range(2, 18):  # 16 prompts of 20 pages each, in a memory of 128
        bench.gateway.submit(number, prompt_of(number, 320), 4, cache_scope=b"flood", cache_share=share)
        await bench.ended(number)
    bench.gateway.submit(18, [*prefix, 6], 4, cache_scope=b"quiet")
    await bench.ended(18)
    assert bench.gateway.tokens[18] == expected([*prefix, 6], 4)
    assert bench.gateway.endings[18].n_cached == (0 if share == 1.0 else 320)


@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize("has_disk", [False, True])
async def test_a_flood_leaves_the_pages_of_another_in_the_tiers_if_it_is_bounded(share: float, has_disk: bool) -> None:
    n_disk = 60 if has_disk else 0
    place = disk_bench.TIERED.disk_cache_bytes // 500
    bench = SchedulerBench(
        MemoryCluster(), msgspec.structs.replace(disk_bench.TIERED, disk_cache_bytes=n_disk * place), tier_loads="always"
    )
    await bench.begin()
    bench.gateway.submit(1, disk_bench.prompt(1), 3, cache_scope=b"quiet", cache_share=0.5)
    await bench.ended(1)
    for number in range(2, 22):  # of ten pages each; the host tier has 40 places
        bench.gateway.submit(number, disk_bench.prompt(number), 3, cache_scope=b"flood", cache_share=share)
        await bench.ended(number)
    bench.gateway.submit(22, disk_bench.prompt(1), 3, cache_scope=b"quiet", cache_share=0.5)
    await bench.ended(22)
    assert bench.gateway.tokens[22] == expected(disk_bench.prompt(1), 3)
    assert bench.gateway.endings[22].n_cached == (0 if share == 1.0 else disk_bench.PROMPT_PAGES * PAGE_TOKENS)
    told = bench.scheduler.statistics()
    assert (told["host_share_evicted"] > 0) == (share < 1.0)
    assert not has_disk or (told["disk_share_evicted"] > 0) == (share < 1.0)
    await disk_bench.close(bench)


async def test_a_bound_that_comes_later_counts_for_what_is_cached_already(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    for number in range(1, 6):
        bench.gateway.submit(number, prompt_of(number, 320), 4, cache_scope=b"flood")
        await bench.ended(number)
    quiet = prompt_of(7, 320)
    bench.gateway.submit(7, quiet, 4, cache_scope=b"quiet")
    await bench.ended(6)
    bench.gateway.submit(8, prompt_of(8, 600), 4, cache_scope=b"flood", cache_share=0.25)
    await bench.ended(7)
    bench.gateway.submit(9, [*quiet, 6], 4, cache_scope=b"quiet")
    await bench.ended(8)
    assert bench.gateway.endings[9].n_cached == 320
