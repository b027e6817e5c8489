"""A sequence enters its slot while its pages are on their way. Whatever becomes of the load, no token is wrong."""

from __future__ import annotations

import asyncio
import random
import time

import msgspec
import numpy as np
import pytest

from actors.scheduler.planning.load_cost import LoadCost
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.process.page_moves import answer_of, move_pages
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.host_pages import HostPages
from messages.caches.page_moves import MOST_MOVED, MovePages, PagesMoved
from messages.caches.prefixes import ForgetPages
from messages.generation.sequences import Cancel, Tokens
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from messages.steps import PAGE_TOKENS
from messages.wire.message import NO_TRACE, Message
from tests.support.depth import at_depth
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.conversations import Troubles, converse
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

_PAGE_BYTES = 8 * PAGE_TOKENS
_WORKER = WorkerSettings(n_slots=4, max_length=512, max_step_tokens=64, hash_chain_pages=24, host_cache_bytes=100 * _PAGE_BYTES)
_N_TOKENS = 10 * PAGE_TOKENS  # of each prompt, and a token more: two of them fill the device


class _SlowAnswers(Gang):
    """Does moves at once, and keeps the answers to loads back while `is_slow`."""

    def __init__(
        self, cluster: MemoryCluster, settings: WorkerSettings, incarnation: int = 1, before: Gang | None = None
    ) -> None:
        super().__init__(cluster, settings, incarnation, before)
        self.is_slow = False
        self.answers: list[PagesMoved] = []

    def handle(self, sender: str, message: object) -> None:
        if not (self.is_slow and isinstance(message, MovePages) and len(message.loaded_pages)):
            super().handle(sender, message)
        elif message.epoch == self._epoch:
            self.moves.append(message)
            self.answers.append(answer_of(message, move_pages(self.engine.host_tier, message)))

    def answer(self) -> None:
        answers, self.answers = self.answers, []
        for moved in answers:
            if moved.epoch == self._epoch:
                self.mailbox.send(self.scheduler, moved)


def _prompt(seed: int) -> list[int]:
    return prompt_of(seed, _N_TOKENS + 1)


async def _ahead(damages: int | None = None, n_new: int = 3) -> tuple[SchedulerBench, _SlowAnswers]:
    """Prompt 1 is in the tier, and attempt 100 asks for it: its results have come, and the answer to its load has not.
    damages: the page of the prompt whose place is damaged; n_new: tokens that it asks for."""
    bench = SchedulerBench(MemoryCluster(), _WORKER, tier_loads="always")
    bench.gang = gang = _SlowAnswers(bench.cluster, _WORKER)
    await bench.begin()
    for attempt, seed in enumerate((1, 2, 3, 4, 1, 2, 3, 4)):  # the later ones are loaded, so the time of loads is known
        bench.gateway.submit(attempt, _prompt(seed), 3)
        await bench.ended(attempt + 1)
    if damages is not None:
        tokens = np.array(_prompt(1)[damages * PAGE_TOKENS : (damages + 1) * PAGE_TOKENS], "<i4").tobytes()
        host, tier = bench.scheduler._gang.tier.contents, gang.engine.host_tier
        assert isinstance(tier, HostPages)
        tier._places[next(place for place in host._entries.values() if host._table.content(place)[2] == tokens), 17] ^= 1
    gang.is_slow = True
    n_plans = len(gang.plans)
    bench.gateway.submit(100, _prompt(1), n_new)
    await bench.cluster.wait_until(lambda: len(gang.plans) > n_plans)
    await bench.cluster.settle()
    assert gang.plans[n_plans].row_counts.sum() == 1, "all but one token of the prompt are on their way"
    assert bench.gateway.tokens[100] == []
    return bench, gang


async def _finish(bench: SchedulerBench, n_cached: int) -> None:
    await bench.cluster.wait_until(lambda: 100 in bench.gateway.endings)
    assert bench.gateway.tokens[100] == hash_chain_tokens(_prompt(1), 3, 0, HASH_CHAIN_VOCABULARY)
    assert bench.gateway.endings[100].n_cached == n_cached
    await _close(bench)


async def _close(bench: SchedulerBench) -> None:
    gang = bench.scheduler._gang
    await bench.cluster.wait_until(lambda: not gang._is_dirty and not gang.tier.ahead)  # the ledger agrees with all holders
    assert not bench.cluster.faults
    await bench.cluster.close()


async def test_tokens_come_once_the_load_has_ended() -> None:
    bench, gang = await _ahead()
    gang.answer()
    await _finish(bench, _N_TOKENS)


async def test_tokens_are_sent_before_the_pages_of_the_load_are_sealed() -> None:
    bench, gang = await _ahead(n_new=60)
    scheduler, ledger = bench.scheduler, bench.scheduler._gang.ledger
    assert ledger is not None
    content = next(iter(scheduler._gang.tier._loads)).contents[0]
    found: list[int | None] = []
    send = scheduler.mailbox.send

    def note(name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        if isinstance(message, Tokens):
            found.append(ledger.find(*content))
        send(name, message, trace)

    scheduler.mailbox.send = note
    gang.answer()
    await bench.cluster.wait_until(lambda: 100 in bench.gateway.endings)
    assert found[0] is None
    assert found[1] is not None, "and then they are sealed"
    await _close(bench)


async def test_what_was_computed_ahead_is_found_afterwards() -> None:
    bench, gang = await _ahead()
    gang.is_slow = False
    n_loaded = bench.scheduler._gang.tier.counts.loaded
    gang.answer()
    await bench.cluster.wait_until(lambda: 100 in bench.gateway.endings)
    bench.gateway.submit(101, _prompt(1), 3)
    await bench.cluster.wait_until(lambda: 101 in bench.gateway.endings)
    assert bench.gateway.endings[101].n_cached == _N_TOKENS
    assert bench.scheduler._gang.tier.counts.loaded == n_loaded + 10
    await _finish(bench, _N_TOKENS)


async def test_a_failed_load_takes_back_what_was_computed_ahead() -> None:
    bench, gang = await _ahead(damages=4)
    gang.is_slow = False
    gang.answer()
    await _finish(bench, 4 * PAGE_TOKENS)


async def test_a_load_without_an_answer_takes_it_back_too() -> None:
    bench, _ = await _ahead()
    tier = bench.scheduler._gang.tier
    tier._now_s = lambda: time.monotonic() + 60.0
    bench.scheduler.tick()
    bench.scheduler.after_mail()
    await _finish(bench, 0)


async def test_a_client_that_leaves_meanwhile_leaves_nothing_behind() -> None:
    bench, gang = await _ahead()
    bench.gateway.mailbox.send("scheduler/0", Cancel(attempt=100, why="client_left"))
    await bench.cluster.wait_until(lambda: 100 in bench.gateway.endings)
    gang.answer()
    await _close(bench)


async def test_a_reset_of_the_caches_meanwhile_takes_it_back() -> None:
    bench, _ = await _ahead()
    bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=1))
    await _finish(bench, 0)


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_gang_that_dies_meanwhile(keeps: bool) -> None:
    bench, gang = await _ahead()
    await bench.cluster.kill("worker/0.0")
    bench.gang = _SlowAnswers(bench.cluster, _WORKER, 2, before=gang if keeps else None)
    bench.cluster.introduce(bench.gang)
    await _finish(bench, 0)


async def test_a_second_sequence_waits_for_the_load() -> None:
    """A plan of both would wait for the copies with all rows."""
    bench, gang = await _ahead()
    n_plans = len(gang.plans)
    bench.gateway.submit(101, _prompt(1), 3)
    await bench.cluster.settle()
    assert all(not plan.new for plan in gang.plans[n_plans:])
    gang.answer()
    await bench.cluster.wait_until(lambda: 101 in bench.gateway.endings)
    assert bench.gateway.tokens[101] == bench.gateway.tokens[100]
    await _finish(bench, _N_TOKENS)


class _FaultyGang(_SlowAnswers):
    """Answers loads late, and damages places."""

    rng = random.Random(0)

    def handle(self, sender: str, message: object) -> None:
        tier = self.engine.host_tier
        if isinstance(message, MovePages) and self.rng.random() < 0.2:
            assert isinstance(tier, HostPages)
            tier._places[self.rng.randrange(len(tier._places)), self.rng.randrange(tier.page_bytes)] ^= 1
        self.is_slow = self.rng.random() < 0.7
        super().handle(sender, message)
        if self.answers:
            asyncio.get_running_loop().call_soon(self._answer_later)

    def _answer_later(self) -> None:
        if self.rng.random() < 0.05:
            self.answer()
        elif self.answers and not self.task.done():
            asyncio.get_running_loop().call_soon(self._answer_later)


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize("seed", range(at_depth(4)))
async def test_random_conversations_with_late_answers_and_faults(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = _FaultyGang.rng = random.Random(seed)
    monkeypatch.setattr(LoadCost, "most_pages", rng.choice([5, MOST_MOVED]))
    n_pages, n_places = rng.choice([17, 24, 40]), rng.choice([30, 300])
    worker = msgspec.structs.replace(_WORKER, hash_chain_pages=n_pages, host_cache_bytes=n_places * _PAGE_BYTES, max_length=256)
    bench = SchedulerBench(MemoryCluster(), worker, tier_loads="always", plans_in_flight=rng.choice([1, 2, 3]))
    bench.gang = _FaultyGang(bench.cluster, worker)
    await bench.begin()
    await converse(bench, rng, 6, 80, Troubles(_FaultyGang, forgets=0.02, dies=0.03), lambda: None)
    await _close(bench)
