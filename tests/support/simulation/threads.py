"""What takes the place of threads in a simulation: the journal's writer, on real files, and a rank's step thread."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from actors.gateway.journal.backlog import PendingFrame
from actors.gateway.journal.segment_log import SegmentLog
from actors.gateway.journal.writer import JournalWriter
from gpu_workers.engine import PlanRefused
from gpu_workers.process.gang_agreement import EpochId
from gpu_workers.process.step_thread import StepThread
from messages.caches.moves import Moves
from messages.steps import Plan, Reset, StepFailed
from tests.support.simulation.edges import Edges, Fault
from tests.support.simulation.gangs import Collectives, NotYet, make_gangs_virtual

_COMMIT_S = (0.0001, 0.004)
_HANG_POLL_S = 0.05
_LOAD_S = (0.05, 0.5)
_STEP_S = (0.001, 0.01)
_SIBLING_S = 0.002  # between two looks for another rank


class SimulatedWriter(JournalWriter):
    """Commits in virtual time. What was not committed when its process dies is lost; what was committed stays.
    `chance` is set by the simulation. While `refuses` is set, every commit fails as on a full disk; `n_refused` counts them.
    """

    chance: random.Random
    edges: Edges
    refuses = False
    n_refused = 0
    hangs = False  # no write returns

    def __init__(self, files: SegmentLog, limit_bytes: int, window_s: float, hang_s: float, name: str) -> None:
        super().__init__(files, limit_bytes, window_s, hang_s, name)
        self._is_due = False
        self.put = self._put

    def start(self) -> None:
        """There is no thread."""

    async def close(self) -> None:
        self._record_all()
        self._files.close()

    def _put(self, entry: PendingFrame | None) -> None:
        if entry is not None:
            self._backlog.add([entry])
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(self.chance.uniform(*_COMMIT_S), self._work)

    def _work(self) -> None:
        if SimulatedWriter.hangs:
            self._loop.call_later(_HANG_POLL_S, self._work)
            return
        self._is_due = False
        self._record_all()
        if self._trouble:
            self._is_due = True
            self._loop.call_later(self._retry_wait_s, self._work)

    def _commit(self, batch: list[PendingFrame]) -> tuple[int, str]:
        if SimulatedWriter.refuses:
            SimulatedWriter.n_refused += 1
            return 0, "database or disk is full"
        with self.edges.around("commits") as fault:
            if fault is Fault.DIES_DURING:
                self._files._write = self._tear  # type: ignore[method-assign]
            return super()._commit(batch)

    def _tear(self, data: bytes) -> None:
        """The process dies when a part of the bytes is written."""
        os.pwrite(self._files._descriptor, data[: self.chance.randrange(len(data) + 1)], self._files._size_bytes)
        self.edges.die()


_REFUSAL_S = 20.0  # between two refusals of plans
_WAIT_S, _PLANS_LATE = 0.004, 64  # every other 32 steps the device says that it waited for their plans


class _RefusingEngine:
    def launch(self, plan: Plan) -> None:
        raise PlanRefused("simulated refusal")


class SimulatedStepThread(StepThread[Any]):
    """Runs the commands of a rank in virtual time, one after the other. A step takes some milliseconds. An urgent plan is often
    computed before plans that were sent earlier."""

    chance: random.Random
    edges: Edges
    collectives: Collectives
    refuses_from_s = 0.0  # no rank refuses a plan before

    def start(self) -> None:
        self._waits = False  # the first plan in the queue has begun, and another rank does not have it yet
        self._queue: deque[tuple[EpochId, Reset | Plan | Moves]] = deque()
        self._engine: Any = None
        self._is_working, self._refuses_next = True, False
        self._urgent: Plan | None = None  # it was computed early, and its result is not sent
        self._early: set[int] = set()  # steps that were computed before earlier ones
        self._loop.call_later(self.chance.uniform(*_LOAD_S), self._load)

    def submit(self, epoch: EpochId, command: Reset | Plan | Moves) -> None:
        if isinstance(command, Plan) and self._may_overtake(command):
            self._work_beside(epoch, command)
            return
        self._queue.append((epoch, command))
        self._work_soon()

    @property
    def is_idle(self) -> bool:
        return not (self._is_working or self._queue or self._urgent) and self._mover.is_idle

    def stop(self, timeout_s: float) -> bool:
        if self._disk is not None and not (self._is_working or self._queue):
            self._disk.close()
        return True

    def _may_overtake(self, plan: Plan) -> bool:
        """True if an urgent plan is computed now, before those in the queue."""
        if not plan.is_urgent or self._urgent is not None or not self._is_working or self.chance.random() < 0.2:
            return False
        return all(isinstance(command, Plan) for _, command in self._queue)

    def _work_beside(self, epoch: EpochId, plan: Plan) -> None:
        with self.edges.around("begins a step") as fault:
            pass
        hangs = fault is Fault.HANGS
        if hangs:
            self._beside.begin(plan)  # it is launched, and no later step ends before it
        elif self._meets(fault):
            return
        before, self._next_step = self._next_step, None
        later = self._events_of(epoch, self._launch(self._engine, epoch, plan))
        self._next_step, self._refuses_next = before, False
        self._early.add(plan.step)
        self._skip_early()
        self._urgent = plan
        self.edges.reach("runs an urgent step")

        def ended() -> None:
            for event in later:
                event()
            self._urgent = None

        if not hangs:
            self._loop.call_later(self.chance.uniform(*_STEP_S), ended)

    def _load(self) -> None:
        self._engine = self._build(self._report_loading)
        self._report(self._events.on_loaded, self._engine.capacity())
        self._is_working = False
        self._work_soon()

    def _work_soon(self) -> None:
        if not self._is_working and self._queue:
            self._is_working = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        epoch, command = self._queue[0]
        later: list[Callable[[], None]] = []
        if isinstance(command, Reset):
            self._early.clear()
        if isinstance(command, Plan):
            if not self._waits:
                with self.edges.around("begins a step") as fault:
                    pass
                if self._meets(fault):
                    return
            if not self._is_agreed(epoch, command):
                self._loop.call_later(_SIBLING_S, self._work)
                return
        try:
            self._execute(self._engine, epoch, command, lambda epoch, launched: later.extend(self._events_of(epoch, launched)))
        except NotYet:
            self._loop.call_later(_SIBLING_S, self._work)
            return
        except Exception as error:
            self._fault(error)
            return
        self._queue.popleft()
        self._step_through(later, epoch, command.step if isinstance(command, Plan) else 0, 0)

    def _meets(self, fault: Fault | None) -> bool:
        """Let a fault happen at the beginning of a step. Returns True if the step goes no further."""
        if fault is Fault.HANGS:
            self._begin_and_hang()
        if fault is Fault.FAILS:
            self._engine._pages[:] ^= 1  # a device that fails may have written anywhere
            self._fault(RuntimeError("simulated device fault"))
        worker: Any = self._events
        now_s, cls = self._loop.time(), type(self)
        # all ranks judge alike: all refuse, or none. Two refusals of one sequence would rightly end it
        self._refuses_next = fault is Fault.REFUSES and worker.settings.n_ranks == 1 and now_s >= cls.refuses_from_s
        if self._refuses_next:
            cls.refuses_from_s = now_s + _REFUSAL_S
        return fault in (Fault.HANGS, Fault.FAILS)

    def _is_agreed(self, epoch: EpochId, plan: Plan) -> bool:
        """The ranks have agreed on whether this plan runs. The wait for that is a part of the step."""
        try:
            self._may_run(epoch, plan)
        except NotYet:
            if not self._waits:
                self._begin_and_hang()
                self._waits = True
            return False
        self._n_begun -= self._waits
        self._waits = False
        return True

    def _launch(self, engine: Any, epoch: EpochId, plan: Plan) -> Any:
        refusing: Any = _RefusingEngine()
        launched = super()._launch(refusing if self._refuses_next else engine, epoch, plan)
        self._skip_early()
        return launched

    def _skip_early(self) -> None:
        while self._next_step in self._early:
            self._early.discard(self._next_step)
            self._next_step += 1

    def _begin_and_hang(self) -> None:
        """The step has begun and never ends; the control task goes on."""
        self._since_s = time.monotonic()
        self._plans.clear()
        self._plans.extend(command for _, command in list(self._queue)[:1] if isinstance(command, Plan))
        self._n_begun += 1

    def _events_of(self, epoch: EpochId, launched: Any) -> list[Callable[[], None]]:
        if isinstance(launched, StepFailed):
            return [lambda: self._events.on_refused(epoch, launched)]
        if launched is None:
            return []
        return [lambda result=result: self._result(epoch, result) for result in self._engine.collect(launched)]

    def _result(self, epoch: EpochId, result: Any) -> None:
        result = replace(result, wait_s=_WAIT_S if result.step % _PLANS_LATE < _PLANS_LATE // 2 else -_WAIT_S)
        self._steps += 1
        with self.edges.around("ends a step"):
            self._events.on_result(epoch, result)

    def _step_through(self, later: list[Callable[[], None]], epoch: EpochId, step: int, number: int) -> None:
        """The rest of a plan, from the result with this number on."""
        if not later:
            self._n_ended = self._n_begun
            self._is_working = False
            self._work_soon()
            return
        event, *rest = later

        def ended() -> None:
            if not self._is_met(epoch, step, number) or (self._urgent is not None and self._urgent.step < step):
                self._loop.call_later(_SIBLING_S, ended)
                return
            event()
            self._step_through(rest, epoch, step, number + 1)

        self._loop.call_later(self.chance.uniform(*_STEP_S), ended)

    def _is_met(self, epoch: EpochId, step: int, number: int) -> bool:
        worker: Any = self._events
        place = (worker.child.spawn_spec.gang_dir, epoch, step, number)
        return self.collectives.is_met(place, worker.settings)


def make_threads_virtual(patch: Callable[[Any, str, Any], None], chance: random.Random, edges: Edges) -> None:
    """Replace the threads of gateways and workers. `patch(object, name, value)` must undo itself after the simulation."""
    import actors.actor as actor
    import actors.gateway.journal.clock as clock
    import actors.gateway.journal.journal as journal
    import gpu_workers.embedding.embedder as embedder
    import gpu_workers.process.worker as worker

    SimulatedWriter.chance = SimulatedStepThread.chance = chance
    SimulatedWriter.edges = SimulatedStepThread.edges = edges
    SimulatedStepThread.collectives = Collectives()
    SimulatedStepThread.refuses_from_s = 0.0
    SimulatedWriter.refuses = SimulatedWriter.hangs = False
    SimulatedWriter.n_refused = 0
    for module in (actor, worker, embedder):  # metrics read /proc, which takes time
        patch(module, "take_snapshot", lambda registry: [])
    patch(journal, "JournalWriter", SimulatedWriter)
    patch(clock, "since_boot_s", lambda: asyncio.get_running_loop().time())
    patch(worker, "StepThread", SimulatedStepThread)
    make_gangs_virtual(patch)
