"""Pages that were evicted come back from the host tier. Whatever is lost or damaged there costs time, and never a token."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from actors.scheduler.planning import page_loads
from actors.scheduler.planning.load_cost import LoadCost
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.pages.adaptive_pages import AdaptivePages
from gpu_workers.process.page_moves import move_pages
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.host_pages import HostPages
from gpu_workers.vault.page_places import DoneMoves, PagePlaces
from messages.caches.page_moves import MOST_MOVED, MovePages
from messages.caches.prefixes import ForgetPages
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from messages.steps import PAGE_TOKENS
from tests.support.depth import at_depth
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.conversations import Troubles, converse
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

_PAGE_BYTES = 8 * PAGE_TOKENS
_WORKER = WorkerSettings(n_slots=4, max_length=512, max_step_tokens=64, hash_chain_pages=24, host_cache_bytes=100 * _PAGE_BYTES)
_PROMPT_PAGES = 10  # of each prompt, and a token more: two of them fill the device


def _prompt(seed: int) -> list[int]:
    return prompt_of(seed, _PROMPT_PAGES * PAGE_TOKENS + 1)


async def _bench(worker: WorkerSettings = _WORKER, **settings: object) -> SchedulerBench:
    bench = SchedulerBench(MemoryCluster(), worker, **({"tier_loads": "always"} | settings))
    await bench.begin()
    return bench


async def _ask(bench: SchedulerBench, attempt: int, seed: int) -> int:
    """Ask for three tokens after the prompt with this seed. Returns the number of prompt tokens that were not computed."""
    bench.gateway.submit(attempt, _prompt(seed), 3)
    await bench.cluster.wait_until(lambda: attempt in bench.gateway.endings)
    want = hash_chain_tokens(_prompt(seed), 3, 0, bench.worker.hash_chain_vocabulary)
    assert bench.gateway.tokens[attempt] == want
    return bench.gateway.endings[attempt].n_cached


async def _evict_first(bench: SchedulerBench) -> None:
    """Prompts 1 to 4, so that the pages of prompt 1 are evicted."""
    for seed in (1, 2, 3, 4):
        assert await _ask(bench, seed, seed) == 0


def _tier(bench: SchedulerBench) -> HostPages:
    tier = bench.gang.engine.host_tier
    assert isinstance(tier, HostPages)
    return tier


async def _close(bench: SchedulerBench) -> None:
    await bench.cluster.wait_until(lambda: not bench.scheduler._gang._is_dirty)  # the ledger agrees with all holders
    assert not bench.cluster.faults
    await bench.cluster.close()


async def test_evicted_pages_come_back() -> None:
    bench = await _bench()
    await _evict_first(bench)
    assert await _ask(bench, 5, 1) == _PROMPT_PAGES * PAGE_TOKENS
    counts = bench.scheduler._gang.tier.counts
    assert counts.loaded == _PROMPT_PAGES
    assert counts.failed == 0
    await _close(bench)


async def test_without_places_nothing_is_moved() -> None:
    bench = await _bench(WorkerSettings(n_slots=4, max_length=512, max_step_tokens=64, hash_chain_pages=24))
    await _evict_first(bench)
    assert await _ask(bench, 5, 1) < _PROMPT_PAGES * PAGE_TOKENS
    assert not bench.gang.moves
    ledger = bench.scheduler._gang.ledger
    assert ledger is not None
    assert ledger.on_evicted is None
    await _close(bench)


async def test_a_damaged_page_and_those_after_it_are_computed() -> None:
    bench = await _bench()
    await _evict_first(bench)
    host = bench.scheduler._gang.tier.contents
    place = next(place for place in host._entries.values() if host._table.content(place)[2] == _tokens_of_page(1, 4))
    _tier(bench)._places[place, 17] ^= 1
    assert await _ask(bench, 5, 1) == 4 * PAGE_TOKENS
    assert bench.scheduler._gang.tier.counts.failed == 1
    await _close(bench)


async def test_places_that_cannot_be_used_yet_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_loads, "_EARLY_S", 0.0)  # tried again with the next message
    bench = await _bench()
    await _evict_first(bench)
    n_known = len(bench.scheduler._gang.tier.contents)
    bench.gang.move_pages = _moved_early
    assert await _ask(bench, 5, 1) == 0
    assert len(bench.scheduler._gang.tier.contents) >= n_known
    assert bench.scheduler._gang.tier.counts.failed == 0
    bench.gang.move_pages = move_pages
    for attempt, seed in enumerate((1, 2, 3, 4, 1), 6):
        await _ask(bench, attempt, seed)
    assert bench.scheduler._gang.tier.counts.loaded >= _PROMPT_PAGES
    await _close(bench)


async def test_ranks_whose_places_cannot_be_used_yet_are_left_alone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_loads, "_EARLY_S", 1e6)
    bench = await _bench()
    bench.gang.move_pages = _moved_early
    await _evict_first(bench)
    n_stored = bench.scheduler._gang.tier.counts.stored
    assert n_stored > 0
    assert await _ask(bench, 5, 1) == 0
    assert bench.scheduler._gang.tier.counts.stored == n_stored
    await _close(bench)


def _moved_early(tier: PagePlaces | None, moves: MovePages) -> DoneMoves:
    return DoneMoves(list(range(len(moves.loaded_pages))), 0.0, is_early=True)


async def test_a_long_load_goes_in_pieces_and_lets_streams_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadCost, "most_pages", 2)
    bench = await _bench()
    await _evict_first(bench)
    bench.gateway.submit(5, [1, 2, 3], 200)
    await bench.cluster.wait_until(lambda: bench.gateway.tokens[5])
    n_before = len(bench.gateway.tokens[5])
    assert await _ask(bench, 6, 1) == _PROMPT_PAGES * PAGE_TOKENS
    assert len(bench.gateway.tokens[5]) >= n_before + _PROMPT_PAGES // 2
    sizes = [len(moves.loaded_pages) for moves in bench.gang.moves]
    assert 1 <= max(sizes) <= 2
    assert sum(sizes) == _PROMPT_PAGES
    await bench.ended(6)
    await _close(bench)


@pytest.mark.parametrize("seed", range(at_depth(4)))
async def test_no_load_fails_while_nothing_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that waits for its turn does not bring back what another one has evicted before that is stored."""
    rng = random.Random(seed)
    monkeypatch.setattr(LoadCost, "most_pages", 1)
    bench = await _bench(msgspec.structs.replace(_WORKER, hash_chain_pages=rng.choice([40, 60])))
    prompts = {attempt: prompt_of(rng.randrange(10), 16 * rng.randint(1, 10) + 1) for attempt in range(120)}
    for attempt, prompt in prompts.items():
        bench.gateway.submit(attempt, prompt, 3)
        await bench.cluster.settle(rng.randint(0, 40))
    await bench.ended(len(prompts))
    for attempt, prompt in prompts.items():
        assert bench.gateway.tokens[attempt] == hash_chain_tokens(prompt, 3, 0, HASH_CHAIN_VOCABULARY)
    assert bench.scheduler._gang.tier.counts.loaded > 0
    assert bench.scheduler._gang.tier.counts.failed == 0
    await _close(bench)


def _tokens_of_page(seed: int, index: int) -> bytes:
    return np.array(_prompt(seed)[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS], "<i4").tobytes()


async def test_a_gang_without_the_pages_computes_them() -> None:
    bench = await _bench()
    await _evict_first(bench)
    await bench.cluster.kill("worker/0.0")
    bench.gang = Gang(bench.cluster, _WORKER, incarnation=2)
    bench.cluster.introduce(bench.gang)
    assert await _ask(bench, 5, 1) == 0
    assert bench.scheduler._gang.tier.counts.failed == 0, "other memory is known to have other content"
    await _close(bench)


async def test_a_gang_that_has_lost_the_places_alone_computes_them() -> None:
    bench = await _bench()
    await _evict_first(bench)
    await bench.cluster.kill("worker/0.0")
    bench.gang = Gang(bench.cluster, _WORKER, incarnation=2, before=bench.gang)
    _tier(bench).clear()
    bench.cluster.introduce(bench.gang)
    assert await _ask(bench, 5, 1) == 0
    assert bench.scheduler._gang.tier.counts.failed > 0
    await _close(bench)


async def test_a_reset_of_the_caches_forgets_what_was_evicted() -> None:
    bench = await _bench()
    await _evict_first(bench)
    bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=1))
    await bench.cluster.settle(20)
    assert await _ask(bench, 5, 1) == 0
    assert bench.scheduler._gang.tier.counts.loaded == 0
    await _close(bench)


async def test_a_load_without_an_answer_is_given_up() -> None:
    bench = await _bench()
    await _evict_first(bench)
    tier, now_s = bench.scheduler._gang.tier, 1000.0
    tier._now_s = lambda: now_s
    bench.gang.loses_moves = True
    bench.gateway.submit(5, _prompt(1), 3)
    await bench.cluster.settle(50)
    assert 5 not in bench.gateway.endings
    bench.scheduler.tick()
    assert tier.held, "it is not late yet"
    now_s += 60.0
    bench.scheduler.tick()
    await bench.cluster.settle(1)
    bench.scheduler.after_mail()
    await bench.cluster.wait_until(lambda: 5 in bench.gateway.endings)
    assert bench.gateway.endings[5].n_cached == 0
    assert not tier.held
    await _close(bench)


class _FaultyGang(Gang):
    """Loses and damages some of what it is asked to move."""

    rng = random.Random(0)

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, MovePages):
            tier = self.engine.host_tier
            assert isinstance(tier, HostPages | AdaptivePages)
            self.loses_moves = self.rng.random() < 0.02
            if self.rng.random() < 0.2:
                places = tier._places if isinstance(tier, HostPages) else tier._memory
                places[self.rng.randrange(len(places)), self.rng.randrange(tier.page_bytes)] ^= 1
        super().handle(sender, message)


def _random_worker(rng: random.Random) -> WorkerSettings:
    return WorkerSettings(
        n_slots=rng.choice([2, 5]),
        max_length=256,
        max_step_tokens=rng.choice([16, 64]),
        hash_chain_pages=rng.choice([17, 24, 40]),
        host_cache_bytes=rng.choice([3, 30, 300]) * _PAGE_BYTES,
        max_lease_steps=rng.choice([1, 4]),
        host_cache_dtype=rng.choice(["same", "int4", "adaptive"]),
    )


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(at_depth(8)))
async def test_random_conversations_with_faults(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = _FaultyGang.rng = random.Random(seed)
    monkeypatch.setattr(LoadCost, "most_pages", rng.choice([1, 2, 5, MOST_MOVED]))
    bench = SchedulerBench(MemoryCluster(), _random_worker(rng), tier_loads="always", plans_in_flight=rng.choice([1, 2, 3]))
    bench.gang = _FaultyGang(bench.cluster, bench.worker)
    await bench.begin()
    tier, now_s = bench.scheduler._gang.tier, 0.0
    tier._now_s = lambda: now_s

    def pass_second() -> None:
        nonlocal now_s
        now_s += 1.0

    await converse(bench, rng, 8, 80, Troubles(_FaultyGang, forgets=0.02, dies=0.03), pass_second)
    assert tier.counts.stored > 0
    await _close(bench)
