"""A gang that dies of certain tokens: once a plan computes one of them, it sends nothing more and a new incarnation starts."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from dataclasses import dataclass, field

from gpu_workers.settings import WorkerSettings
from messages import steps
from messages.errors import UnknownPeer
from messages.lifecycle.lifecycle import Cause
from tests.support.memory_cluster import Gang, MemoryCluster

CANARY = [1, 2, 3]  # the built-in prompt of `actors/scheduler/gang/canary.py`


@dataclass
class Fate:
    """What all incarnations of a gang share."""

    poison: set[int]  # token ids that kill the gang that computes them
    rng: random.Random
    cause: Cause = "crashed"  # of the deaths by poison, as PeerDown reports it
    deaths: list[int] = field(default_factory=list)  # rows of each plan that killed
    is_alive: bool = False
    is_mute: bool = False  # no result of a request is sent
    is_broken: bool = False  # every plan kills
    returns: asyncio.Event = field(default_factory=asyncio.Event)  # set: a dead gang has a successor soon
    tasks: list[asyncio.Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.returns.set()


class MortalGang(Gang):
    """One incarnation. Results are sent after some turns of the event loop, and are lost if it dies before."""

    def __init__(
        self, cluster: MemoryCluster, settings: WorkerSettings, fate: Fate, incarnation: int = 1, replica: int = 0
    ) -> None:
        super().__init__(cluster, settings, incarnation, replica=replica)
        self._settings, self._fate = settings, fate
        self._tokens: dict[int, list[int]] = {}  # by slot
        self._late: deque[steps.Result] = deque()
        self._is_dead = False
        self._n_canary = 0  # results of the canary still to send
        fate.is_alive = True
        self.hold()

    def handle(self, sender: str, message: object) -> None:
        if self._is_dead:
            return
        super().handle(sender, message)
        if isinstance(message, steps.Reset):
            self._tokens.clear()
        elif isinstance(message, steps.Plan) and message.epoch == self._epoch:
            self._enter(message)
            if message.new_tokens.tolist() == CANARY:
                self._n_canary = 2
            self._take_held()
            if self._is_deadly(message):
                self._fate.deaths.append(len(message.row_slots))
                self.die(self._fate.cause)

    def die(self, cause: Cause) -> None:
        """Send nothing more. The cluster reports the death and starts the next incarnation."""
        self._is_dead, self._fate.is_alive = True, False
        self._fate.tasks.append(asyncio.ensure_future(self._replace(cause)))

    async def _replace(self, cause: Cause) -> None:
        await self.cluster.kill(self.name, cause)
        await self._fate.returns.wait()
        for _ in range(self._fate.rng.randint(0, 30)):
            await asyncio.sleep(0)
        self.cluster.introduce(MortalGang(self.cluster, self._settings, self._fate, self.incarnation + 1, self.replica))

    def _enter(self, plan: steps.Plan) -> None:
        at = 0
        for new in plan.new:
            self._tokens[new.slot] = plan.new_tokens[at : at + new.n_tokens].tolist()
            at += new.n_tokens

    def _is_deadly(self, plan: steps.Plan) -> bool:
        if self._fate.is_broken:
            return True
        more = plan.n_steps - 1
        rows = zip(plan.row_slots.tolist(), plan.row_starts.tolist(), plan.row_counts.tolist(), strict=True)
        return any(not self._fate.poison.isdisjoint(self._tokens[slot][start : start + n + more]) for slot, start, n in rows)

    def _take_held(self) -> None:
        assert self._held is not None
        for result in self._held:
            offset = 0
            for slot, count in zip(result.slots.tolist(), result.counts.tolist(), strict=True):
                self._tokens[slot] += result.ids[offset : offset + count].tolist()
                offset += count
            self._late.append(result)
            self._fate.tasks.append(asyncio.ensure_future(self._send_late(result)))
        self._held.clear()

    async def _send_late(self, result: steps.Result) -> None:
        for _ in range(self._fate.rng.randint(0, 4)):
            await asyncio.sleep(0)
        while not self._is_dead and self._late and self._late[0] is not result:
            await asyncio.sleep(0)
        is_muted = self._fate.is_mute and not self._n_canary
        self._n_canary = max(self._n_canary - 1, 0)
        if not self._is_dead and not is_muted and self._late:
            with contextlib.suppress(UnknownPeer):  # a test that ends closes the scheduler first
                self.mailbox.send(self.scheduler, self._late.popleft())
