"""A scheduler between a scripted gateway and the real hash-chain engine, in one event loop."""

from __future__ import annotations

from typing import Any

from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from tests.support.memory_cluster import CollectingGateway, Gang, MemoryCluster

WORKER = WorkerSettings(model_folder="hash-chain", n_slots=8, max_length=512, max_step_tokens=64, hash_chain_pages=128)


def expected(prompt: list[int], n: int, seed: int = 0) -> list[int]:
    """The engine's `n` tokens after a prompt. Seed 0: greedy."""
    return hash_chain_tokens(prompt, n, seed, WORKER.hash_chain_vocabulary)


def prompt_of(seed: int, n: int) -> list[int]:
    """A prompt of `n` tokens, different for each seed."""
    return [(seed * 7919 + i * 104729) % 1000 for i in range(n)]


class SchedulerBench:
    """One scheduler, one gang, one gateway. `settings` are the scheduler's."""

    def __init__(self, cluster: MemoryCluster, worker: WorkerSettings = WORKER, **settings: Any) -> None:
        self.cluster, self.worker = cluster, worker
        self.scheduler = cluster.start(SchedulerActor, "scheduler/0", SchedulerSettings(**settings))
        self.gateway = CollectingGateway(cluster)
        self.gang = Gang(cluster, worker)

    async def begin(self) -> None:
        """Introduce gateway and gang to the scheduler."""
        await self.cluster.wait_until(lambda: "scheduler/0" in self.cluster.up)
        self.cluster.introduce(self.gateway)
        self.cluster.introduce(self.gang)
        await self.cluster.settle(20)

    async def ended(self, n: int) -> None:
        """Wait until `n` sequences have ended or been refused."""
        await self.cluster.wait_until(lambda: len(self.gateway.endings) + len(self.gateway.refused) >= n)
