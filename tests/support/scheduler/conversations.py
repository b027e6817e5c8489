"""Random conversations with one scheduler, amid cancelled requests, resets of caches and deaths of the gang."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from gpu_workers.hash_chain import hash_chain_tokens
from messages.caches.prefixes import ForgetPages
from messages.generation.sequences import Cancel
from tests.support.memory_cluster import Gang
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of


@dataclass(frozen=True)
class Troubles:
    """`gang`: the class of gangs. `forgets`, `dies`: how likely a reset of caches, or a death, follows a request."""

    gang: type[Gang]
    forgets: float
    dies: float


async def converse(
    bench: SchedulerBench,
    rng: random.Random,
    n_talks: int,
    n_requests: int,
    troubles: Troubles,
    pass_second: Callable[[], None],
) -> None:
    """Send requests that go on with one of `n_talks` conversations each, until all have ended, and check their tokens.
    `pass_second`: lets a second pass."""
    talks = [prompt_of(number, rng.randint(1, 150)) for number in range(n_talks)]
    jobs: dict[int, tuple[list[int], int]] = {}
    while len(bench.gateway.endings) < n_requests:
        if (attempt := len(jobs)) < n_requests:
            talk = rng.randrange(len(talks))
            jobs[attempt] = talks[talk], rng.randint(1, 20)
            talks[talk] = [*talks[talk], *prompt_of(attempt, rng.randint(1, 20))][:200]
            bench.gateway.submit(attempt, *jobs[attempt])
            await _trouble(bench, rng, attempt, troubles)
        await bench.cluster.settle(rng.choice([0, rng.randint(1, 60)]))
        pass_second()
        bench.scheduler.tick()
        bench.scheduler.after_mail()
    for attempt, (prompt, n) in jobs.items():
        want, got = hash_chain_tokens(prompt, n, 0, bench.worker.hash_chain_vocabulary), bench.gateway.tokens[attempt]
        assert got == (want[: len(got)] if bench.gateway.endings[attempt].reason == "cancelled" else want)


async def _trouble(bench: SchedulerBench, rng: random.Random, attempt: int, troubles: Troubles) -> None:
    """Perhaps a client leaves, the caches are reset, or the gang dies, with its memory or without."""
    if rng.random() < 0.05:
        bench.gateway.mailbox.send("scheduler/0", Cancel(attempt=attempt, why="client_left"))
    if rng.random() < troubles.forgets:
        bench.gateway.mailbox.send("scheduler/0", ForgetPages(call=attempt))
    if rng.random() < troubles.dies:
        dead = bench.gang
        await bench.cluster.kill("worker/0.0")
        before = dead if rng.random() < 0.5 else None
        bench.gang = troubles.gang(bench.cluster, bench.worker, dead.incarnation + 1, before=before)
        bench.cluster.introduce(bench.gang)
