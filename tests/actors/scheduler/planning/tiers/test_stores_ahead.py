"""Pages are copied to the host tier before they are evicted, so that an eviction finds them there."""

from __future__ import annotations

import random

import pytest

from actors.pages.eviction.lru import LruEviction
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.host_ledger import Content, HostLedger
from actors.pages.seal_table import private_table
from actors.scheduler.planning.tiers import stores_ahead
from actors.scheduler.planning.tiers.stores_ahead import StoresAhead
from gpu_workers.settings import WorkerSettings
from messages.steps import PAGE_TOKENS
from tests.support.memory_cluster import MemoryCluster
from tests.support.pages.late_gang import LateGang
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

_N_PAGES = 32
_WORKER = WorkerSettings(n_slots=4, max_length=512, max_step_tokens=64, hash_chain_pages=_N_PAGES, host_cache_bytes=12_800)


class _Clock:
    now_s = 1000.0


def _content(number: int) -> Content:
    return 2 * number + 101, 0, bytes([number]) * (4 * PAGE_TOKENS)


def _ledger(n_cached: int) -> ForgettingLedger:
    """All pages have contents, of which the first ones are cached, in this order."""
    ledger = ForgettingLedger(_N_PAGES, LruEviction(_N_PAGES))
    for number in range(_N_PAGES):
        assert ledger.allocate() == number
        ledger.seal(number, *_content(number), is_planned=True)
    ledger.commit_plan()
    for page in range(n_cached):
        ledger.release([page])
    return ledger


def _ahead(page_s: float | None) -> tuple[StoresAhead, _Clock]:
    clock = _Clock()
    return StoresAhead(2, lambda: page_s, lambda: clock.now_s), clock


def test_the_next_ones_are_stored_first_and_each_once() -> None:
    ledger, host = _ledger(20), HostLedger(private_table(1, 100))
    assert host.store(_content(1)) is not None
    ahead, clock = _ahead(0.0005)
    stores = ahead.take(ledger, host)
    assert [(store.page, store.content_hash) for store in stores] == [(0, _content(0)[0]), (2, _content(2)[0])]
    assert all(host.find(_content(store.page)) == store.place for store in stores)
    ahead.sent(7)
    assert ahead.take(ledger, host) == [], "one piece at a time"
    ahead.moved("worker/0.0", 7)
    assert ahead.take(ledger, host) == []
    ahead.moved("worker/0.1", 7)
    stored = []
    for number in range(8, 20):
        pages = [store.page for store in ahead.take(ledger, host)]
        stored += pages
        ahead.sent(number)
        for rank in ("worker/0.0", "worker/0.1"):
            ahead.moved(rank, number)
        clock.now_s += 1.0
    assert stored == [3, 4, 5, 6, 7], "a quarter of the pages, all of which are evicted later"


def test_a_page_that_has_changed_meanwhile_is_not_stored() -> None:
    ledger, host = _ledger(20), HostLedger(private_table(1, 100))
    ahead, _ = _ahead(0.001)
    assert [store.page for store in ahead.take(ledger, host)] == [0]
    ahead.sent(1)
    ledger.acquire([1])  # a sequence holds it again
    assert [ledger.allocate(), ledger.allocate()] == [0, 2]
    for rank in ("worker/0.0", "worker/0.1"):
        ahead.moved(rank, 1)
    assert [store.page for store in ahead.take(ledger, host)] == [3]


def test_a_piece_without_answers_is_not_awaited_for_ever() -> None:
    ledger, host = _ledger(20), HostLedger(private_table(1, 100))
    ahead, clock = _ahead(0.001)
    assert ahead.take(ledger, host)
    ahead.sent(1)
    clock.now_s += 1.0
    assert ahead.take(ledger, host) == []
    clock.now_s += 60.0
    assert [store.page for store in ahead.take(ledger, host)] == [1]


async def _bench_with_prompts() -> SchedulerBench:
    """The device has three prompts cached."""
    LateGang.rng = random.Random(1)
    bench = SchedulerBench(MemoryCluster(), _WORKER, tier_loads="always")
    bench.gang = LateGang(bench.cluster, _WORKER)
    await bench.begin()
    for attempt in (1, 2, 3):
        bench.gateway.submit(attempt, prompt_of(attempt, 10 * PAGE_TOKENS), 3)
        await bench.cluster.wait_until(lambda attempt=attempt: attempt in bench.gateway.endings)
    return bench


async def test_a_quiet_gang_has_the_next_ones_in_its_tier() -> None:
    bench = await _bench_with_prompts()
    tier, ledger = bench.scheduler._gang.tier, bench.scheduler._gang.ledger
    assert ledger is not None

    def has_stored() -> bool:
        bench.scheduler.after_mail()
        return all(tier.contents.find(content) is not None for content in ledger.evicted_next(_N_PAGES // 4))

    await bench.cluster.wait_until(has_stored)
    assert ledger.statistics().evictions == 0
    assert len(tier.contents) >= len(ledger.evicted_next(_N_PAGES // 4)) > 0  # a look in between may have seen other next ones
    await bench.cluster.close()


async def test_nothing_is_copied_while_there_is_no_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_ahead, "_LOOK_S", 0.0)
    monkeypatch.setattr(stores_ahead, "_FIRST_PAGES", 1)  # so that some are left when the gang dies
    bench = await _bench_with_prompts()
    assert isinstance(bench.gang, LateGang)
    await bench.cluster.kill("worker/0.0")
    bench.gang.is_dead = True
    await bench.cluster.wait_until(lambda: not bench.scheduler._gang.is_alive)
    n_stored = bench.scheduler._gang.tier.counts.stored
    for _ in range(3):
        bench.scheduler.after_mail()
    assert bench.scheduler._gang.tier.counts.stored == n_stored
    bench.gang = LateGang(bench.cluster, _WORKER, 2)
    bench.cluster.introduce(bench.gang)
    bench.gateway.submit(4, prompt_of(1, 10 * PAGE_TOKENS), 3)
    await bench.cluster.wait_until(lambda: 4 in bench.gateway.endings)
    assert bench.gateway.tokens[4] == bench.gateway.tokens[1]
    assert not bench.cluster.faults
    await bench.cluster.close()
