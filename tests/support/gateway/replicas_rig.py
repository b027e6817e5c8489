"""A gateway, two schedulers, and for each of them a gang that can die, in one event loop."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.settings import WorkerSettings
from messages.generation.replica_state import ReplicaCondition
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.scheduler.mortal_gang import Fate, MortalGang

WORKER = WorkerSettings(model_folder="hash-chain", n_slots=16, max_length=512, max_step_tokens=64, hash_chain_pages=128)


@dataclass
class TwoReplicas:
    """The gateway's rig, and the fates of the two gangs."""

    rig: Rig
    fates: list[Fate]

    def gang(self, replica: int) -> MortalGang:
        """The present incarnation of a replica's gang."""
        gang = self.rig.cluster.scripted[f"worker/{replica}.0"]
        assert isinstance(gang, MortalGang)
        return gang

    def condition(self, replica: int) -> ReplicaCondition:
        """The condition of a replica as the gateway knows it."""
        return self.rig.manager.dispatcher.failover.replicas.condition(f"scheduler/{replica}")

    def n_at(self, replica: int) -> int:
        """How many attempts are open at a replica."""
        return self.rig.manager.dispatcher.book.loads([f"scheduler/{replica}"])[f"scheduler/{replica}"]


@asynccontextmanager
async def two_replicas(**settings: Any) -> AsyncIterator[TwoReplicas]:
    """Two replicas that are up; `settings` are the gateway's."""
    async with rig(with_scheduler=False, max_length=512, **settings) as r:
        fates = [Fate(set(), random.Random(replica)) for replica in range(2)]
        both = TwoReplicas(r, fates)
        for replica, fate in enumerate(fates):
            r.cluster.start(SchedulerActor, f"scheduler/{replica}", SchedulerSettings())
            r.cluster.introduce(MortalGang(r.cluster, WORKER, fate, replica=replica))
        await r.cluster.wait_until(lambda: len(r.gateway.living("scheduler")) == 2 and len(r.gateway.living("worker")) == 2)
        told = r.manager.dispatcher.failover.replicas._reports
        await r.cluster.wait_until(lambda: len(told) == 2 and both.condition(0) == both.condition(1) == "up")
        yield both
        for fate in fates:  # a gang that dies while the cluster is closed would be missing there
            fate.poison, fate.is_broken = set(), False
            fate.returns.set()
        await r.cluster.wait_until(lambda: all(fate.is_alive for fate in fates))
