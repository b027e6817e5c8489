"""Sequences that kill their gang wherever they are computed, among innocent ones: only the poisonous ones end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages.generation.sequences import Ack
from messages.lifecycle.lifecycle import Cause
from tests.support.depth import examples
from tests.support.memory_cluster import CollectingGateway, MemoryCluster
from tests.support.scheduler.mortal_gang import Fate, MortalGang
from tests.support.scheduler.scheduler_bench import SchedulerBench

pytestmark = pytest.mark.slow

Jobs = dict[int, tuple[list[int], int]]
VOCABULARY = 50_000
LAST_PROMPT, LAST_N = [1, 2, 3], 5  # of the innocent sequence that comes when all others have ended


def worker_settings(rng: random.Random) -> WorkerSettings:
    return WorkerSettings(
        model_folder="hash-chain",
        n_slots=rng.choice([3, 8, 16]),
        max_length=256,
        max_step_tokens=rng.choice([16, 64, 256]),
        hash_chain_pages=rng.choice([17, 48, 300]),
        hash_chain_vocabulary=VOCABULARY,
        max_lease_steps=rng.choice([1, 4]),
    )


def random_jobs(rng: random.Random, n: int) -> Jobs:
    return {i: ([rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 80))], rng.randint(1, 60)) for i in range(n)}


def oracle(jobs: Jobs, attempt: int) -> list[int]:
    prompt, n = jobs[attempt]
    return hash_chain_tokens(prompt, n, 0, VOCABULARY)


def poison_of(rng: random.Random, jobs: Jobs, attempts: list[int]) -> dict[int, int]:
    """A deadly token for each of these jobs: of its prompt, or one that it generates (and then computes)."""
    chosen = {}
    for attempt in attempts:
        prompt, n = jobs[attempt]
        tokens = [*prompt, *oracle(jobs, attempt)][: len(prompt) + n - 1]  # the last token is never computed
        chosen[attempt] = rng.choice(tokens)
    others = {t for a in jobs if a not in chosen for t in [*jobs[a][0], *oracle(jobs, a)]}
    others |= {*LAST_PROMPT, *hash_chain_tokens(LAST_PROMPT, LAST_N, 0, VOCABULARY)}
    return {attempt: token for attempt, token in chosen.items() if token not in others}


class MortalBench(SchedulerBench):
    """One scheduler, one gateway, a gang that can die."""

    def __init__(self, cluster: MemoryCluster, worker: WorkerSettings, fate: Fate, **fields: Any) -> None:
        self.cluster, self.worker, self.fate = cluster, worker, fate
        self.scheduler = cluster.start(SchedulerActor, "scheduler/0", SchedulerSettings(**fields))
        self.gateway = CollectingGateway(cluster)
        self.gang = MortalGang(cluster, worker, fate)

    def present(self) -> MortalGang:
        gang = self.cluster.scripted["worker/0.0"]
        assert isinstance(gang, MortalGang)
        return gang

    def n_tokens(self) -> int:
        return sum(map(len, self.gateway.tokens.values()))

    def check(self, jobs: Jobs, poison: dict[int, int]) -> None:
        """Every innocent has its answer, every poison its ending, and not a token is wrong."""
        for attempt in jobs:
            want, got = oracle(jobs, attempt), self.gateway.tokens[attempt]
            ending = self.gateway.endings[attempt]
            if attempt in poison:
                assert ending.reason == "quarantined"
                assert "times" in ending.detail
                assert got == want[: len(got)]
            else:
                assert (ending.reason, got) == ("length", want)


def live(scenario: Callable[[MemoryCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster = MemoryCluster()
        await scenario(cluster)
        await cluster.close()

    asyncio.run(run())


@given(st.integers(0, 2**32), st.integers(1, 3))
@examples(20)
def test_poison_is_quarantined_and_innocents_end_right(seed: int, n_poison: int) -> None:
    rng = random.Random(seed)

    async def scenario(cluster: MemoryCluster) -> None:
        jobs = random_jobs(rng, rng.randint(n_poison, 24))
        poison = poison_of(rng, jobs, rng.sample(sorted(jobs), n_poison))
        fate = Fate(set(poison.values()), rng, rng.choice(["crashed", "faulted", "hung", "out_of_memory"]))
        bench = MortalBench(cluster, worker_settings(rng), fate, prefix_reuse=rng.random() < 0.7)
        await bench.begin()
        for attempt, (prompt, n) in jobs.items():
            bench.gateway.submit(attempt, prompt, n)
            await cluster.settle(rng.choice([0, 0, 5, 40]))
        await bench.ended(len(jobs))
        bench.check(jobs, poison)
        assert len(fate.deaths) <= 4 * len(poison)
        assert sum(n == 1 for n in fate.deaths) >= 2 * len(poison)  # the ending is certain
        n_deaths = len(fate.deaths)
        bench.gateway.submit(1000, LAST_PROMPT, LAST_N)
        await bench.ended(len(jobs) + 1)
        assert len(fate.deaths) == n_deaths
        assert bench.scheduler.statistics()["on_probation"] == 0

    live(scenario)


async def innocents(cluster: MemoryCluster, rng: random.Random) -> tuple[MortalBench, Jobs]:
    """Up to a dozen sequences in work, none of them a poison."""
    jobs = random_jobs(rng, rng.randint(1, 12))
    bench = MortalBench(cluster, worker_settings(rng), Fate(set(), rng))
    await bench.begin()
    for attempt, (prompt, n) in jobs.items():
        bench.gateway.submit(attempt, prompt, n)
    return bench, jobs


@given(st.integers(0, 2**32))
@examples(8)
def test_crashes_that_no_sequence_causes_quarantine_none_that_makes_progress(seed: int) -> None:
    """A bad machine: crashes again and again, as early as after the first token of each life."""
    rng = random.Random(seed)

    async def scenario(cluster: MemoryCluster) -> None:
        bench, jobs = await innocents(cluster, rng)
        for _ in range(25):
            await cluster.settle(10)
            enough = bench.n_tokens() + rng.choice([1, 1, 3])
            await cluster.wait_until(
                lambda enough=enough: bench.n_tokens() >= enough or len(bench.gateway.endings) == len(jobs)
            )
            await cluster.settle(rng.randint(0, 4))
            bench.present().die("crashed")
            await cluster.wait_until(lambda: bench.fate.is_alive)
        await bench.ended(len(jobs))
        bench.check(jobs, {})

    live(scenario)


@given(st.integers(0, 2**32))
@examples(8)
def test_kills_and_stops_from_outside_put_no_sequence_on_probation_however_fast_they_come(seed: int) -> None:
    """As often as the gang comes back, whether or not anybody has got on meanwhile."""
    rng = random.Random(seed)

    async def scenario(cluster: MemoryCluster) -> None:
        bench, jobs = await innocents(cluster, rng)
        for _ in range(25):
            await cluster.wait_until(lambda: bench.fate.is_alive)
            for _ in range(rng.choice([0, 5, 40])):
                await asyncio.sleep(0)
            bench.present().die(rng.choice(["killed", "ended"]))  # by hand, or by a rolling restart
            await cluster.settle(rng.randint(0, 4))
            assert bench.scheduler.statistics()["on_probation"] == 0
        await cluster.wait_until(lambda: bench.fate.is_alive)
        await bench.ended(len(jobs))
        bench.check(jobs, {})

    live(scenario)


async def test_the_first_death_puts_no_sequence_on_probation() -> None:
    cluster = MemoryCluster()
    rng = random.Random(1)
    bench = MortalBench(cluster, WorkerSettings(model_folder="hash-chain", n_slots=8, max_length=256), Fate(set(), rng))
    await bench.begin()
    for attempt in range(8):
        bench.gateway.submit(attempt, [attempt + 1] * 20, 100)
    await cluster.wait_until(lambda: bench.gateway.n_messages > 10)
    bench.present().die("crashed")
    await cluster.wait_until(lambda: bench.fate.is_alive and len(bench.present().plans) > 5)
    assert bench.scheduler.statistics()["on_probation"] == 0
    canary, plans = bench.present().plans[:2], bench.present().plans[2:]
    assert [plan.new_tokens.tolist() for plan in canary] == [[1, 2, 3], []]
    assert {len(plan.row_slots) for plan in plans} == {8}
    await bench.ended(8)
    await cluster.close()


async def test_a_suspect_without_credit_delays_no_other_sequence() -> None:
    """Its gateway records nothing: then the others run, and its own turn comes later."""
    cluster = MemoryCluster()
    worker = WorkerSettings(model_folder="hash-chain", n_slots=8, max_length=256, hash_chain_vocabulary=VOCABULARY)
    bench = MortalBench(cluster, worker, Fate({777}, random.Random(2)), unacked_messages=64)
    await bench.begin()
    slow = CollectingGateway(cluster, name="gateway/1")
    cluster.introduce(slow)
    await cluster.settle()
    slow.submit(1, [5, 777, 6], 20)
    await cluster.wait_until(lambda: bench.scheduler.statistics()["on_probation"] == 1)
    bench.scheduler._outgoing["gateway/1"].number += 100
    for attempt in range(2, 6):
        bench.gateway.submit(attempt, [5, 6, attempt], 20)
    await bench.ended(4)
    assert not slow.endings
    n_deaths = len(bench.fate.deaths)
    slow.mailbox.send("scheduler/0", Ack(up_to=100))
    await cluster.wait_until(lambda: 1 in slow.endings)
    assert slow.endings[1].reason == "quarantined"
    assert n_deaths < len(bench.fate.deaths) == 4
    await cluster.close()


async def test_lines_about_a_suspect_have_the_id_of_its_request() -> None:
    with capture_logs() as log:
        cluster = MemoryCluster()
        worker = WorkerSettings(model_folder="hash-chain", n_slots=8, max_length=256, hash_chain_vocabulary=VOCABULARY)
        bench = MortalBench(cluster, worker, Fate({777}, random.Random(2)))
        await bench.begin()
        bench.gateway.submit(1, [5, 777, 6], 20)
        bench.gateway.submit(2, [5, 6], 20)
        await bench.ended(2)
        await cluster.close()
    (ended,) = [line for line in log if line["event"] == "sequence ended by force"]
    assert (ended["request"], ended["attempt"], ended["reason"]) == ("r1", 1, "quarantined")
    alone = [line["requests"] for line in log if line["event"] == "suspects are computed alone"]
    assert (alone[0], alone[-1]) == (["r1", "r2"], ["r2"])


async def test_one_on_probation_takes_slots_and_pages_of_those_that_wait_for_it() -> None:
    """Two sequences are on probation and fill the gang: the first to come free must not starve the second."""
    cluster = MemoryCluster()
    worker = WorkerSettings(model_folder="hash-chain", n_slots=2, max_length=48, hash_chain_pages=3)
    bench = MortalBench(cluster, worker, Fate(set(), random.Random(3), is_mute=True), plans_in_flight=3)
    await bench.begin()
    for attempt in (1, 2):
        bench.gateway.submit(attempt, [attempt] * 15, 20)
    for _ in range(2):
        await cluster.wait_until(lambda: bench.scheduler._gang.tracker.plans_in_flight == 3)
        bench.present().die("crashed")
        await cluster.wait_until(lambda: not bench.scheduler._gang.is_alive)
    bench.fate.is_mute = False
    assert bench.scheduler.statistics()["on_probation"] == 2
    await bench.ended(2)
    assert {ending.reason for ending in bench.gateway.endings.values()} == {"length"}
    await cluster.close()


@pytest.mark.parametrize("cause", ["crashed", "faulted", "hung"])
async def test_a_device_that_faults_in_every_step_blames_nobody(cause: Cause) -> None:
    cluster = MemoryCluster()
    worker = WorkerSettings(model_folder="hash-chain", n_slots=8, max_length=256, hash_chain_vocabulary=VOCABULARY)
    bench = MortalBench(cluster, worker, Fate(set(), random.Random(4), cause, is_broken=True))
    jobs = {attempt: ([attempt, 2, 3], 10) for attempt in range(1, 7)}
    await bench.begin()
    for attempt, (prompt, n) in jobs.items():
        bench.gateway.submit(attempt, prompt, n)
    await cluster.wait_until(lambda: len(bench.fate.deaths) == 20)
    assert not bench.gateway.endings
    assert bench.gateway.conditions[-1] == "sick"
    assert set(bench.fate.deaths[1:]) == {1}  # the requests were computed once; after that only the canary
    bench.fate.is_broken = False
    await bench.ended(len(jobs))
    bench.check(jobs, {})
    assert bench.gateway.conditions[-1] == "up"
    assert not bench.scheduler._gang.probation.has_suspects
    await cluster.close()
