"""A gang whose copies of pages end late: plans of the hash chain run at once, and copies by and by, whenever they are not
awaited."""

from __future__ import annotations

import asyncio
import copy
import random
from collections import deque
from typing import Any

import msgspec
import numpy as np

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.copy_stream import Copies
from gpu_workers.pages.pinned_places import PinnedPlaces
from gpu_workers.pages.queued_places import QueuedPlaces
from gpu_workers.process.page_moves import answer_of
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.page_places import QueuedMoves
from messages import steps
from messages.caches.page_moves import MovePages
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.pages.tier_bench import Pins
from tests.support.pages.twin_device import TwinCopies, TwinDevice


class LateEngine(HashChainEngine):
    """The hash chain with the host tier of a GPU. rng: chooses when copies go on."""

    def __init__(self, settings: WorkerSettings, rng: random.Random) -> None:
        super().__init__(settings)
        self._rng = rng
        self.make_tier(None)

    def capacity(self) -> steps.EngineCapacity:
        return msgspec.structs.replace(super().capacity(), moves_beside_steps=True)

    def make_tier(self, before: PinnedPlaces | None) -> None:
        """A new process: its copies are none, and its places those of the process before, if there was one."""
        pages = self._pages.view(np.uint8).reshape(self._settings.hash_chain_pages, -1)
        form = self._host.form
        memory = PinnedPlaces(self._host.n_places, self._host.place_bytes, Pins(), is_compressed=form is not None)
        if before is not None:
            memory.region.buffer[:] = before.region.buffer
        self.device, self.memory = _LateDevice(pages, self._rng, form), memory
        self.host_tier = self.tier = QueuedPlaces(memory, CopyQueue(self.device, len(pages)))
        self.tier.open()
        assert self.tier.wait_ready(60.0)

    def launch(self, plan: steps.Plan) -> Any:
        after = copy.deepcopy(self._slots)
        after.apply(plan)
        self.tier.copies.hold(plan, after)
        return super().launch(plan)


class _LateDevice(TwinDevice):
    """Plans run when they are launched, so those that are held let the copies run first."""

    def hold_plans(self, copies: Copies) -> None:
        assert isinstance(copies, TwinCopies)
        copies.wait()


class LateGang(Gang):
    """Rank 0 of a gang of one. `rng`: of all gangs of a test."""

    rng = random.Random(0)

    def __init__(
        self, cluster: MemoryCluster, settings: WorkerSettings, incarnation: int = 1, before: LateGang | None = None
    ) -> None:
        super().__init__(cluster, settings, incarnation, before)
        if before is None:
            self.engine = LateEngine(settings, self.rng)
        else:
            before.is_dead = True
            assert isinstance(self.engine, LateEngine)
            self.engine.make_tier(self.engine.memory)
        self.is_dead = False
        self._queued: deque[tuple[MovePages, QueuedMoves]] = deque()

    def handle(self, sender: str, message: object) -> None:
        if not isinstance(message, MovePages) or message.epoch != self._epoch:
            super().handle(sender, message)
            return
        assert isinstance(self.engine, LateEngine)
        self.moves.append(message)
        self._queued.append((message, self.engine.tier.queue(message)))
        if len(self._queued) == 1:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """The copies come a little further; what is done is answered."""
        if self.is_dead or not self._queued:
            return
        assert isinstance(self.engine, LateEngine)
        self.engine.device.run(self.rng.randrange(4))
        if self.rng.random() < 0.2:
            moves, queued = self._queued.popleft()
            moved = answer_of(moves, queued.wait())
            if moves.epoch == self._epoch:
                self.mailbox.send(self.scheduler, moved)
        asyncio.get_running_loop().call_soon(self._go_on)
