"""Two schedulers, one of which has a prefix: the other gets its pages. What is lost or damaged costs time, never a token."""

from __future__ import annotations

import random

import msgspec
import pytest

from actors.scheduler.planning.exchange import borrowing
from actors.scheduler.planning.exchange.lending import Asker
from actors.scheduler.planning.exchange.page_exchange import PageExchange
from actors.scheduler.planning.load_cost import LoadCost
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages.caches.exchange import PagesLent, PagesWanted
from messages.caches.prefixes import ForgetPages
from messages.generation.sequences import Holder
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import at_depth
from tests.support.memory_cluster import CollectingGateway, Gang, MemoryCluster
from tests.support.scheduler.memory_exchange import places_of
from tests.support.scheduler.scheduler_bench import prompt_of

_PAGE_BYTES = 8 * PAGE_TOKENS
_WORKER = WorkerSettings(n_slots=4, max_length=512, max_step_tokens=64, hash_chain_pages=64, exchange_bytes=40 * _PAGE_BYTES)
_PROMPT_PAGES = 10  # of each prompt, and a token more


def _prompt(seed: int) -> list[int]:
    return prompt_of(seed, _PROMPT_PAGES * PAGE_TOKENS + 1)


class _Pair:
    """Two replicas in one event loop. `schedulers`, `gangs`: by replica."""

    def __init__(self, worker: WorkerSettings = _WORKER) -> None:
        self.cluster, self.worker = MemoryCluster(), worker
        settings = SchedulerSettings(tier_loads=borrowing.TierLoads.ALWAYS)
        self.schedulers = [self.cluster.start(SchedulerActor, f"scheduler/{n}", settings) for n in (0, 1)]
        self.gangs = [Gang(self.cluster, worker, replica=n) for n in (0, 1)]
        self.gateway = CollectingGateway(self.cluster)
        self._n_asked = 0

    async def begin(self) -> None:
        await self.cluster.wait_until(lambda: {"scheduler/0", "scheduler/1"} <= self.cluster.up.keys())
        for member in (self.gateway, *self.gangs):
            self.cluster.introduce(member)
        await self.cluster.settle(20)

    def exchange(self, replica: int) -> PageExchange:
        return self.schedulers[replica]._gang.tier.exchange

    def submit(self, replica: int, prompt: list[int], holder: int | None = None, n: int = 3) -> int:
        """Submit a prompt. holder: the replica that has all of its pages. Returns the number of the attempt."""
        attempt, self._n_asked = self._n_asked, self._n_asked + 1
        self.gateway.scheduler = f"scheduler/{replica}"
        held = None if holder is None else Holder(replica=holder, pages=len(prompt) // PAGE_TOKENS)
        self.gateway.submit(attempt, prompt, n, holder=held)
        return attempt

    async def ask(self, replica: int, prompt: list[int], holder: int | None = None) -> int:
        """Ask for three tokens after a prompt, and check them. Returns the number of prompt tokens that were not computed."""
        attempt = self.submit(replica, prompt, holder)
        await self.cluster.wait_until(lambda: attempt in self.gateway.endings)
        assert self.gateway.tokens[attempt] == hash_chain_tokens(prompt, 3, 0, self.worker.hash_chain_vocabulary)
        return self.gateway.endings[attempt].n_cached

    async def close(self) -> None:
        await self.cluster.wait_until(lambda: not any(scheduler._gang._is_dirty for scheduler in self.schedulers))
        assert not self.cluster.faults
        await self.cluster.close()


async def _pair(worker: WorkerSettings = _WORKER) -> _Pair:
    """Replica 0 has prompt 1."""
    pair = _Pair(worker)
    await pair.begin()
    assert await pair.ask(0, _prompt(1)) == 0
    return pair


async def test_pages_of_another_replica_are_not_computed() -> None:
    pair = await _pair()
    assert await pair.ask(1, _prompt(1), holder=0) == _PROMPT_PAGES * PAGE_TOKENS
    assert pair.exchange(1).borrower.counts.moved == _PROMPT_PAGES
    assert pair.exchange(0).lending.n_lent == _PROMPT_PAGES
    assert await pair.ask(1, _prompt(1)) == _PROMPT_PAGES * PAGE_TOKENS, "they are ordinary cached pages"
    await pair.close()


async def test_without_places_nobody_is_asked() -> None:
    pair = await _pair(msgspec.structs.replace(_WORKER, exchange_bytes=0))
    assert await pair.ask(1, _prompt(1), holder=0) == 0
    assert not pair.gangs[0].exchanges + pair.gangs[1].exchanges
    await pair.close()


async def test_only_what_the_own_cache_lacks_is_moved() -> None:
    pair = await _pair()
    assert await pair.ask(1, _prompt(1)[: 4 * PAGE_TOKENS + 1]) == 0
    assert await pair.ask(1, _prompt(1), holder=0) == _PROMPT_PAGES * PAGE_TOKENS
    assert pair.exchange(1).borrower.counts.moved == _PROMPT_PAGES - 4
    told = pair.schedulers[1].statistics()
    assert told["exchange_saved_s"] == round(pair.exchange(1).borrower.counts.saved_s, 3)
    assert pair.exchange(1).borrower.counts.saved_s != 0.0
    assert told["exchange_saved_bytes"] == (_PROMPT_PAGES - 4) * _PAGE_BYTES
    await pair.close()


async def test_what_lies_in_the_exchange_is_not_copied_again() -> None:
    pair = await _pair()
    await pair.ask(1, _prompt(1), holder=0)
    await pair.cluster.kill("worker/1.0")
    pair.gangs[1] = Gang(pair.cluster, _WORKER, incarnation=2, replica=1)
    pair.cluster.introduce(pair.gangs[1])
    assert await pair.ask(1, _prompt(1), holder=0) == _PROMPT_PAGES * PAGE_TOKENS
    assert sum(len(moves.stored_pages) for moves in pair.gangs[0].exchanges) == _PROMPT_PAGES
    await pair.close()


async def test_a_directory_that_is_wrong_costs_a_question() -> None:
    pair = await _pair()
    assert await pair.ask(1, _prompt(2), holder=0) == 0
    assert pair.exchange(1).borrower.counts.moved == pair.exchange(1).borrower.counts.failed == 0
    await pair.close()


async def test_a_damaged_page_and_those_after_it_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = await _pair()
    honest = PageExchange.lent

    def damage(exchange: PageExchange, scheduler: str, answer: PagesLent) -> None:
        places_of(pair.gangs[0].engine)._places[answer.places[4], 17] ^= 1
        honest(exchange, scheduler, answer)

    monkeypatch.setattr(PageExchange, "lent", damage)
    assert await pair.ask(1, _prompt(1), holder=0) == 4 * PAGE_TOKENS
    assert pair.exchange(1).borrower.counts.failed == 1
    await pair.close()


async def test_a_long_move_goes_in_pieces_and_lets_both_streams_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadCost, "most_pages", 2)
    pair = await _pair()
    streams = [pair.submit(replica, [replica + 5], n=200) for replica in (0, 1)]
    await pair.cluster.wait_until(lambda: all(pair.gateway.tokens[stream] for stream in streams))
    n_before = [len(pair.gateway.tokens[stream]) for stream in streams]
    assert await pair.ask(1, _prompt(1), holder=0) == _PROMPT_PAGES * PAGE_TOKENS
    for stream, before, gang in zip(streams, n_before, pair.gangs, strict=True):
        assert len(pair.gateway.tokens[stream]) >= before + _PROMPT_PAGES // 2
        sizes = [len(moves.stored_pages) + len(moves.loaded_pages) for moves in gang.exchanges]
        assert max(sizes) <= 2
        assert sum(sizes) == _PROMPT_PAGES
    await pair.close()


async def test_a_death_of_the_other_scheduler_lets_the_sequence_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = await _pair()
    monkeypatch.setattr(PageExchange, "wanted", lambda *arguments: None)
    attempt = pair.submit(1, _prompt(1), holder=0)
    await pair.cluster.wait_until(lambda: bool(pair.exchange(1).borrower.held))
    assert attempt not in pair.gateway.endings
    await pair.cluster.kill("scheduler/0")
    await pair.cluster.wait_until(lambda: attempt in pair.gateway.endings)
    assert pair.gateway.endings[attempt].n_cached == 0
    pair.schedulers.pop(0)
    await pair.close()


@pytest.mark.parametrize("silent", ["scheduler", "lender", "own"])
async def test_silence_is_not_waited_for(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = await _pair()
    if silent == "scheduler":
        monkeypatch.setattr(PageExchange, "wanted", lambda *arguments: None)
        monkeypatch.setattr(borrowing, "_ANSWER_LIMIT_S", 0.0)
    else:
        pair.gangs[0 if silent == "lender" else 1].loses_moves = True
        monkeypatch.setattr(borrowing, "_ANSWER_LIMIT_S", 0.0 if silent == "lender" else 60.0)
        monkeypatch.setattr(borrowing, "_LIMIT_S", 0.0)
    attempt = pair.submit(1, _prompt(1), holder=0)
    await pair.cluster.settle()
    assert attempt not in pair.gateway.endings
    pair.schedulers[1].tick()
    pair.schedulers[1].after_mail()
    await pair.cluster.wait_until(lambda: attempt in pair.gateway.endings)
    assert pair.gateway.endings[attempt].n_cached == 0
    n_questions = pair.exchange(1).borrower._n_asked
    await pair.ask(1, _prompt(2), holder=0)
    assert pair.exchange(1).borrower._n_asked == n_questions, "it rests"
    await pair.close()


async def test_nothing_is_borrowed_after_a_reset_of_caches() -> None:
    """Another replica may not have been reset yet."""
    pair = await _pair()
    pair.gateway.mailbox.send("scheduler/1", ForgetPages(call=1))
    await pair.cluster.settle()
    assert await pair.ask(1, _prompt(1), holder=0) == 0
    assert not pair.gangs[1].exchanges
    await pair.close()


async def test_a_scheduler_that_replaces_another_one_borrows_nothing_at_first() -> None:
    """The one before may have carried out a reset that the other replica has not yet."""
    pair = await _pair()
    await pair.cluster.kill("scheduler/1")
    settings = SchedulerSettings(tier_loads=borrowing.TierLoads.ALWAYS)
    pair.schedulers[1] = pair.cluster.start(SchedulerActor, "scheduler/1", settings, incarnation=2)
    await pair.cluster.wait_until(lambda: "scheduler/1" in pair.cluster.up)
    assert await pair.ask(1, _prompt(1), holder=0) == 0
    assert not pair.gangs[1].exchanges
    await pair.close()


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_reset_while_pages_are_on_their_way_seals_none(replica: int) -> None:
    pair = await _pair()
    pair.gangs[replica].loses_moves = True
    attempt = pair.submit(1, _prompt(1), holder=0)
    await pair.cluster.wait_until(lambda: bool(pair.gangs[replica].exchanges))
    pair.gateway.mailbox.send(f"scheduler/{replica}", ForgetPages(call=1))
    await pair.cluster.wait_until(lambda: attempt in pair.gateway.endings)
    assert pair.gateway.endings[attempt].n_cached == 0
    assert pair.exchange(1).borrower.counts.moved == 0
    await pair.close()


async def test_a_collision_of_hashes_lends_nothing() -> None:
    pair = await _pair()
    ledger = pair.schedulers[0]._gang.ledger
    assert ledger is not None
    content_hash, parent, _ = next(iter(ledger._content.values()))
    other = int32s([7] * PAGE_TOKENS)
    pair.exchange(0).wanted(
        Asker("scheduler/1", 1, 1), PagesWanted(call=1, hashes=uint64s([parent, content_hash]), tokens=other)
    )
    assert not pair.exchange(0).lending.held
    await pair.close()


@pytest.mark.parametrize("seed", range(at_depth(4)))
async def test_random_prompts_of_two_replicas(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few places, small devices, hints that are often wrong, deaths of gangs: every token is right."""
    rng = random.Random(seed)
    monkeypatch.setattr(LoadCost, "most_pages", rng.choice([1, 3, 100]))
    monkeypatch.setattr(borrowing, "_REST_S", 0.0)
    pair = _Pair(msgspec.structs.replace(_WORKER, hash_chain_pages=40, exchange_bytes=rng.choice([6, 20, 60]) * _PAGE_BYTES))
    await pair.begin()
    prompts = {}
    for _ in range(80):
        prompt, replica = prompt_of(rng.randrange(6), 16 * rng.randint(1, 12) + 1), rng.randrange(2)
        prompts[pair.submit(replica, prompt, rng.choice([None, 1 - replica, 1 - replica]))] = prompt
        if rng.random() < 0.05:
            dead = rng.randrange(2)
            before = pair.gangs[dead]
            await pair.cluster.kill(before.name)
            keeps = before if rng.random() < 0.5 else None
            pair.gangs[dead] = Gang(pair.cluster, pair.worker, before.incarnation + 1, keeps, dead)
            pair.cluster.introduce(pair.gangs[dead])
        await pair.cluster.settle(rng.randint(0, 40))
    await pair.cluster.wait_until(lambda: len(pair.gateway.endings) == len(prompts))
    for attempt, prompt in prompts.items():
        assert pair.gateway.tokens[attempt] == hash_chain_tokens(prompt, 3, 0, pair.worker.hash_chain_vocabulary)
    assert pair.exchange(0).borrower.counts.moved + pair.exchange(1).borrower.counts.moved > 0
    await pair.close()


async def test_the_figures_of_the_places() -> None:
    pair = await _pair()
    await pair.ask(1, _prompt(1), holder=0)
    told = pair.schedulers[0].statistics()
    assert (told["exchange_places"], told["exchange_pages"], told["exchange_evicted"]) == (40.0, _PROMPT_PAGES, 0.0)
    capacity = pair.schedulers[0]._gang.capacity
    assert capacity is not None
    assert told["exchange_bytes"] == _PROMPT_PAGES * capacity.page_bytes
    assert pair.schedulers[1].statistics()["exchange_moved"] == _PROMPT_PAGES
    await pair.close()
