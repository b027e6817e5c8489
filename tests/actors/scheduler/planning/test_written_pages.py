"""A plan writes to no page but those that it says: the content of any other page may be stored later."""

from __future__ import annotations

import random

import numpy as np
import pytest

from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.tier_moves import TierMoves
from gpu_workers.settings import WorkerSettings
from messages.steps import PAGE_TOKENS, Plan
from tests.support.depth import at_depth
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of


class _WatchedGang(Gang):
    """Compares its pages before and after each plan."""

    said: dict[tuple[int, int], set[int]]  # by epoch and step
    n_copied = n_leased = 0

    def handle(self, sender: str, message: object) -> None:
        before = self.engine._pages.copy()
        super().handle(sender, message)
        if isinstance(message, Plan):
            changed = np.flatnonzero((before != self.engine._pages).reshape(-1, PAGE_TOKENS).any(axis=1))
            assert set(changed.tolist()) <= self.said[message.epoch, message.step]
            self.n_copied += message.copies is not None
            self.n_leased += message.n_steps > 1


@pytest.mark.parametrize("seed", range(at_depth(4)))
async def test_a_plan_writes_only_where_it_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, said = random.Random(seed), dict[tuple[int, int], set[int]]()
    honest = TierMoves.send

    def send(moves: TierMoves, planned: PlannedStep | None) -> None:
        if planned is not None:
            said[planned.plan.epoch, planned.plan.step] = set(planned.written_pages())
        honest(moves, planned)

    monkeypatch.setattr(TierMoves, "send", send)
    worker = WorkerSettings(
        n_slots=5, max_length=256, max_step_tokens=64, hash_chain_pages=rng.choice([24, 60]), max_lease_steps=4
    )
    bench = SchedulerBench(MemoryCluster(), worker, plans_in_flight=rng.choice([1, 2, 3]))
    bench.gang.task.cancel()
    gang = bench.gang = _WatchedGang(bench.cluster, worker)
    gang.said = said
    await bench.begin()
    for attempt in range(40):
        bench.gateway.submit(attempt, prompt_of(rng.randrange(6), rng.randint(1, 100)), rng.randint(1, 60))
        await bench.cluster.settle(rng.choice([0, rng.randint(1, 60)]))
    await bench.cluster.wait_until(lambda: len(bench.gateway.endings) == 40 or gang.task.done())
    assert not gang.task.done() or gang.task.exception() is None
    assert gang.n_copied > 0
    assert gang.n_leased > 0
    await bench.cluster.close()
