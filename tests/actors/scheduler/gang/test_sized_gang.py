"""A scheduler returns the memory of pages that it does not need, over deaths of any process. No token is wrong and no sequence
waits because of that. The pages of the hash chain hold its state, so a page that is returned too early changes all tokens after
it."""

from __future__ import annotations

import math
import random

import msgspec
import numpy as np
import pytest

from actors.pages.sizing.sized_ledger import SizedLedger
from actors.scheduler.scheduler_actor import SchedulerActor
from gpu_workers.settings import WorkerSettings
from messages.caches.page_moves import MovePages, ReturnPages
from messages.caches.prefixes import ForgetPages
from messages.steps import PAGE_TOKENS, Reset
from messages.wire.arrays import int32s
from tests.support.depth import at_depth
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, expected, prompt_of

_PAGE_BYTES, _N_PAGES, _LEAST = 8 * PAGE_TOKENS, 64, 6
_WORKER = WorkerSettings(
    n_slots=4, max_length=512, max_step_tokens=64, hash_chain_pages=_N_PAGES, kv_least_bytes=_LEAST * _PAGE_BYTES
)
_TIERED = msgspec.structs.replace(_WORKER, host_cache_bytes=100 * _PAGE_BYTES)


class _Gang(Gang):
    """Notes what it is told to do."""

    def __init__(
        self, cluster: MemoryCluster, worker: WorkerSettings, incarnation: int = 1, before: Gang | None = None
    ) -> None:
        super().__init__(cluster, worker, incarnation, before)
        self.told: list[object] = []

    def handle(self, sender: str, message: object) -> None:
        self.told.append(message)
        super().handle(sender, message)

    @property
    def returned(self) -> list[int]:
        """The pages that it was told to return in this epoch, in order."""
        told = [message for message in self.told if isinstance(message, Reset | ReturnPages)]
        first = max(at for at, message in enumerate(told) if isinstance(message, Reset))
        return [page for message in told[first:] if isinstance(message, ReturnPages) for page in message.pages.tolist()]


async def _begin(worker: WorkerSettings = _WORKER, **settings: object) -> SchedulerBench:
    bench = SchedulerBench(MemoryCluster(), worker, follows_load=True, kv_spare_share=0.0, tier_loads="always", **settings)
    bench.gang.task.cancel()
    bench.gang = _Gang(bench.cluster, worker)
    await bench.begin()
    return bench


def _ledger(scheduler: SchedulerActor) -> SizedLedger:
    ledger = scheduler._gang.ledger
    assert isinstance(ledger, SizedLedger)
    return ledger


def _gang(bench: SchedulerBench) -> _Gang:
    assert isinstance(bench.gang, _Gang)
    return bench.gang


async def _quiet_window(bench: SchedulerBench, n: int = 1) -> None:
    """A window of time ends, `n` times."""
    for _ in range(n):
        _ledger(bench.scheduler)._needs._end_s = -math.inf
        bench.scheduler.tick()
        await bench.cluster.settle(20)


async def _ask(bench: SchedulerBench, attempt: int, seed: int, n_tokens: int = 300) -> int:
    """Ask for four tokens after a prompt. Returns the number of prompt tokens that were not computed."""
    bench.gateway.submit(attempt, prompt_of(seed, n_tokens), 4)
    await bench.cluster.wait_until(lambda: attempt in bench.gateway.endings)
    assert bench.gateway.tokens[attempt] == expected(prompt_of(seed, n_tokens), 4)
    return bench.gateway.endings[attempt].n_cached


async def test_memory_follows_the_load_up_and_down() -> None:
    bench = await _begin()
    assert len(_gang(bench).returned) == _N_PAGES - _LEAST, "what the warm-up has touched goes back"
    await _ask(bench, 1, seed=1)
    await _ask(bench, 2, seed=2)
    assert _ledger(bench.scheduler).n_in_use == 19
    n_told = len(_gang(bench).returned)
    await _quiet_window(bench, 3)
    assert len(_gang(bench).returned) == n_told + 19 - _LEAST
    assert bench.scheduler.statistics()["pages_returned"] == _N_PAGES - _LEAST
    pages = bench.gang.engine._pages.reshape(-1, PAGE_TOKENS)
    assert not pages[_ledger(bench.scheduler).returned].any()
    assert await _ask(bench, 3, seed=2) == _LEAST * PAGE_TOKENS, "the first pages of the newest prompt are still known"
    await bench.cluster.close()


async def test_a_prompt_that_needs_all_pages_runs_at_once_in_a_small_ledger() -> None:
    bench = await _begin(msgspec.structs.replace(_WORKER, hash_chain_pages=20))
    await _ask(bench, 1, seed=1, n_tokens=315)
    assert bench.gateway.endings[1].reason == "length"
    assert _ledger(bench.scheduler).n_in_use == 20
    assert bench.scheduler.metrics.preemptions._value.get() == 0
    await bench.cluster.close()


async def test_a_page_goes_back_after_its_content_was_copied_to_the_host_tier() -> None:
    bench = await _begin(_TIERED)
    for seed in (1, 2, 3):
        await _ask(bench, seed, seed)
    await _quiet_window(bench, 4)
    stored: set[int] = set()
    for message in _gang(bench).told:
        if isinstance(message, MovePages):
            stored |= set(message.stored_pages.tolist())
    assert _ledger(bench.scheduler).n_in_use == _LEAST
    assert _gang(bench).engine.host_tier is not None
    assert stored
    for seed in (3, 2, 1):
        assert await _ask(bench, 10 + seed, seed) == 18 * PAGE_TOKENS, "nothing was lost"
    await bench.cluster.close()


async def test_the_next_gang_hears_what_the_one_before_may_have_missed() -> None:
    bench = await _begin()
    await _ask(bench, 1, seed=1)
    await _quiet_window(bench, 3)
    returned = _ledger(bench.scheduler).returned
    await bench.cluster.kill("worker/0.0")
    await bench.cluster.wait_until(lambda: not bench.scheduler._gang.is_alive)
    bench.gang = _Gang(bench.cluster, _WORKER, 2, before=bench.gang)
    bench.cluster.introduce(bench.gang)
    await bench.cluster.wait_until(lambda: bench.scheduler._gang.is_alive)
    await bench.cluster.settle(20)
    assert sorted(_gang(bench).returned) == sorted(returned)
    assert await _ask(bench, 2, seed=1) == _LEAST * PAGE_TOKENS
    await bench.cluster.close()


async def test_a_gang_with_new_memory_begins_small_again() -> None:
    bench = await _begin()
    await _ask(bench, 1, seed=1)
    await bench.cluster.kill("worker/0.0")
    await bench.cluster.wait_until(lambda: not bench.scheduler._gang.is_alive)
    bench.cluster.introduce(_Gang(bench.cluster, _WORKER, 2))
    await bench.cluster.wait_until(lambda: bench.scheduler._gang.is_alive)
    assert _ledger(bench.scheduler).n_in_use == _LEAST
    assert await _ask(bench, 2, seed=1) == 0
    await bench.cluster.close()


async def test_forgotten_pages_stay_in_use_until_a_window_ends() -> None:
    bench = await _begin()
    await _ask(bench, 1, seed=1)
    bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=1, scope=b"", tokens=int32s([]), older_than_s=0.0))
    await bench.cluster.wait_until(lambda: _ledger(bench.scheduler).n_known == 0)
    assert await _ask(bench, 2, seed=1) == 0
    await _quiet_window(bench, 3)
    assert _ledger(bench.scheduler).n_in_use == _LEAST
    await bench.cluster.close()


@pytest.mark.seeds
@pytest.mark.parametrize("worker", [_WORKER, _TIERED], ids=["device", "host tier"])
@pytest.mark.parametrize("seed", range(at_depth(4)))
async def test_tokens_are_right_whatever_is_returned_meanwhile(worker: WorkerSettings, seed: int) -> None:
    """Windows end at any time, also while plans are in flight, and the gang dies now and then."""
    chance, incarnation = random.Random(seed), 1
    bench = await _begin(worker)
    prompts = {n: prompt_of(chance.randrange(6), chance.randrange(1, 300)) for n in range(1, 40)}
    for attempt, prompt in prompts.items():
        bench.gateway.submit(attempt, prompt, 1 + attempt % 40)
        await bench.cluster.settle(chance.randrange(30))
        if chance.random() < 0.6 and bench.scheduler._gang.is_alive:
            _ledger(bench.scheduler)._needs._end_s = -math.inf
            bench.scheduler.tick()
        if chance.random() < 0.1:
            incarnation += 1
            await bench.cluster.kill("worker/0.0")
            bench.gang = _Gang(bench.cluster, worker, incarnation, before=bench.gang if chance.random() < 0.7 else None)
            bench.cluster.introduce(bench.gang)
    await bench.ended(len(prompts))
    for attempt, prompt in prompts.items():
        assert bench.gateway.tokens[attempt] == expected(prompt, 1 + attempt % 40)
    assert np.count_nonzero(bench.gang.engine._pages), "the gang has computed"
    await bench.cluster.close()


async def test_without_a_least_size_nothing_is_returned() -> None:
    bench = await _begin(msgspec.structs.replace(_WORKER, kv_least_bytes=0))
    await _ask(bench, 1, seed=1)
    await _quiet_window(bench, 4)
    assert not _gang(bench).returned
    await bench.cluster.close()


@pytest.mark.parametrize("n_least_bytes", [0, _LEAST * _PAGE_BYTES])
async def test_a_request_that_needs_all_pages_runs_after_any_use_of_them(n_least_bytes: int) -> None:
    """Pages need no compaction: a sequence reaches them through a table, wherever they lie."""
    bench = await _begin(msgspec.structs.replace(_WORKER, max_length=2000, kv_least_bytes=n_least_bytes))
    chance = random.Random(1)
    for attempt in range(1, 30):
        bench.gateway.submit(attempt, prompt_of(attempt, chance.randrange(1, 200)), chance.randrange(1, 60))
        await bench.cluster.settle(chance.randrange(20))
    await bench.ended(29)
    n_tokens = _N_PAGES * PAGE_TOKENS - 8
    bench.gateway.submit(99, prompt_of(99, n_tokens), 8)
    await bench.ended(30)
    assert bench.gateway.endings[99].reason == "length"
    assert bench.gateway.tokens[99] == expected(prompt_of(99, n_tokens), 8)
    await bench.cluster.close()
