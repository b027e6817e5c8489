"""Pages that the host tier has overwritten come back from the disk. Whatever is lost there costs time, and never a token."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from actors.pages.host_ledger import HostLedger
from actors.pages.seal_table import NoSeals, private_table
from actors.pages.tier_loads import TierLoads
from actors.scheduler.disk_contents import DiskContents
from actors.scheduler.planning.disk_tier import DiskTier
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from messages.caches.prefixes import ForgetPages
from messages.steps import PAGE_TOKENS
from tests.support.memory_cluster import Gang
from tests.support.scheduler.disk_bench import (
    PAGE_BYTES,
    PROMPT_PAGES,
    PROMPTS,
    TIERED,
    ask,
    close,
    full_bench,
    prompt,
    tier_of,
)


async def test_pages_come_back_from_the_disk() -> None:
    bench = await full_bench()
    assert await ask(bench, 20, 1) == PROMPT_PAGES * PAGE_TOKENS
    counts = tier_of(bench).counts
    assert (counts.read, counts.failed) == (PROMPT_PAGES, 0)
    assert bench.gang.disk.n_read == PROMPT_PAGES
    told = bench.scheduler.statistics()
    assert told["disk_saved_s"] == round(counts.saved_s, 3) != 0.0
    assert told["disk_saved_bytes"] == PROMPT_PAGES * PAGE_BYTES
    assert told["host_saved_bytes"] == told["host_loaded"] * PAGE_BYTES > 0.0
    assert told["host_saved_s"] == round(bench.scheduler._gang.tier.counts.saved_s, 3)
    await close(bench)


@pytest.mark.parametrize(("n_pages", "n_host"), [(24, 40), (14, 43), (14, 80)])
async def test_what_comes_from_the_disk_pushes_nothing_out_that_is_not_written(n_pages: int, n_host: int) -> None:
    bench = await full_bench(msgspec.structs.replace(TIERED, hash_chain_pages=n_pages, host_cache_bytes=n_host * PAGE_BYTES))
    for number in range(3 * len(PROMPTS)):
        assert await ask(bench, 20 + number, PROMPTS[number % len(PROMPTS)]) == PROMPT_PAGES * PAGE_TOKENS
    await close(bench)


async def test_a_page_is_written_once() -> None:
    bench = await full_bench()
    for attempt, seed in enumerate((1, 2, 3, 1, 2, 3), start=20):
        assert await ask(bench, attempt, seed) == PROMPT_PAGES * PAGE_TOKENS
    known = len(bench.gang.disk.contents)
    assert bench.gang.disk.n_written == known == len(tier_of(bench).contents.ledger)
    await close(bench)


async def test_pages_that_both_tiers_have_in_part_come_back_whole() -> None:
    bench = await full_bench()
    tier = bench.scheduler._gang.tier
    wanted = prompt(1)
    for index in (0, 3, 4):
        content = _entry(tier.disk._disk, _tokens(wanted, index))[1]
        place = tier.contents.reserve(content)
        assert place is not None
        tier.contents.fill(place, content)
        disk_place = tier.disk._disk.find(content)
        assert disk_place is not None
        assert bench.gang.engine.host_tier is not None
        _, check, page = bench.gang.disk.contents[disk_place]
        bench.gang.engine.host_tier.put(place, content[0], check, page)
    assert await ask(bench, 20, 1) == PROMPT_PAGES * PAGE_TOKENS
    assert tier_of(bench).counts.read == PROMPT_PAGES - 3
    await close(bench)


def _entry(ledger: HostLedger, tokens: bytes) -> tuple[int, tuple[int, int, bytes]]:
    """(place, content) of a page with these tokens."""
    entries = ((place, ledger._table.content(place)) for place in ledger._entries.values())
    return next(entry for entry in entries if entry[1][2] == tokens)


def _tokens(prompt: list[int], index: int) -> bytes:
    return np.array(prompt[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS], "<i4").tobytes()


async def test_a_page_that_the_disk_has_lost_is_computed_with_those_after_it() -> None:
    bench = await full_bench()
    disk = tier_of(bench)._disk
    place, content = _entry(disk, _tokens(prompt(1), 4))
    del bench.gang.disk.contents[place]
    assert await ask(bench, 20, 1) == 4 * PAGE_TOKENS
    assert disk.find(content) is None
    assert tier_of(bench).counts.failed == 1
    await close(bench)


async def test_without_a_disk_no_message_is_sent() -> None:
    bench = await full_bench(msgspec.structs.replace(TIERED, disk_cache_bytes=0))
    assert await ask(bench, 20, 1) == 0
    assert bench.gang.disk.n_written == 0
    await close(bench)


async def test_a_reset_of_the_caches_forgets_what_is_on_the_disk() -> None:
    bench = await full_bench()
    bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=1))
    await bench.cluster.settle(20)
    assert await ask(bench, 20, 1) == 0
    assert tier_of(bench).counts.read == 0
    await close(bench)


@pytest.mark.parametrize("most_found", [3, 256])
async def test_the_next_scheduler_asks_what_the_disk_has(most_found: int) -> None:
    bench = await full_bench()
    known, bench.gang.disk.most_found = len(tier_of(bench).contents.ledger), most_found
    await bench.cluster.kill("scheduler/0")
    settings = SchedulerSettings(tier_loads=TierLoads.ALWAYS)
    bench.scheduler = bench.cluster.start(SchedulerActor, "scheduler/0", settings, 2)
    await bench.cluster.wait_until(lambda: tier_of(bench).n_places > 0 and not tier_of(bench).contents.is_asking)
    assert len(tier_of(bench).contents.ledger) == known
    assert await ask(bench, 20, 1) == PROMPT_PAGES * PAGE_TOKENS
    assert tier_of(bench).counts.read == PROMPT_PAGES
    await close(bench)


async def test_what_is_forgotten_leaves_the_disk_before_the_gateway_hears_of_it() -> None:
    bench = await full_bench()
    bench.gang.loses_moves = True
    bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=1))
    await bench.cluster.settle(20)
    assert not tier_of(bench).contents.is_forgotten
    assert bench.scheduler._resets._unanswered
    bench.gang.loses_moves = False
    now_s = 1e6
    tier_of(bench).contents._now_s = lambda: now_s
    bench.scheduler.tick()
    await bench.cluster.settle(1)
    bench.scheduler.after_mail()
    await bench.cluster.wait_until(lambda: tier_of(bench).contents.is_forgotten)
    assert not bench.gang.disk.contents
    assert not bench.scheduler._resets._unanswered
    await close(bench)


async def test_a_read_without_an_answer_is_given_up() -> None:
    bench = await full_bench()
    now_s = 1000.0
    tier = tier_of(bench)
    tier._now_s = lambda: now_s
    bench.gang.loses_moves = True
    bench.gateway.submit(20, prompt(1), 3)
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
    await close(bench)


async def test_a_gang_that_dies_while_pages_are_read_computes_them_or_reads_them_again() -> None:
    bench = await full_bench()
    bench.gang.loses_moves = True
    bench.gateway.submit(20, prompt(1), 3)
    await bench.cluster.settle(50)
    assert tier_of(bench)._reads
    dead = bench.gang
    await bench.cluster.kill("worker/0.0")
    bench.gang = Gang(bench.cluster, bench.worker, dead.incarnation + 1, before=dead)
    bench.cluster.introduce(bench.gang)
    await bench.cluster.wait_until(lambda: 20 in bench.gateway.endings)
    await close(bench)


def test_a_slow_disk_is_not_asked_and_later_asked_again() -> None:
    cost = StepCost()
    for _ in range(20):
        for n_tokens in (1, 64, 256):
            cost.learn(0, n_tokens, n_tokens * n_tokens // 2, 0.001 + n_tokens * 1e-5)
    assert cost.is_known
    tier = DiskTier(1, TierLoads.FASTER, cost, DiskContents(1, NoSeals(), lambda: 0.0), lambda places: None)
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
