"""A scheduler's view of a gang that does not exist: plans are taken, results, refusals and deaths are made up."""

from __future__ import annotations

from collections import deque

from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.gang.probation import ForcedEnding
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.policies.priority import PriorityPolicy
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from messages.generation.replica_state import ReplicaCondition
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.lifecycle.lifecycle import Cause
from messages.steps import Capacity, EngineCapacity, Result, StepFailed
from messages.wire.arrays import int32s


class GangBench:
    """A gang that is only believed in: plans are taken, results are made up."""

    def __init__(self, n_slots: int = 4) -> None:
        self.queues = SequenceQueues(PriorityPolicy())
        self.gang = GangView(self.queues, SchedulerSettings())
        self._n_slots = n_slots
        self._number = self._generation = 0
        self._planned: deque[PlannedStep] = deque()
        self.passes_canary = True  # after each death; False: the test decides what becomes of it
        self.begin()

    def begin(self) -> None:
        self._generation += 1
        epoch = self.gang.begin_epoch().epoch
        self.gang.begin(
            Capacity(
                epoch=epoch,
                memory_generation=self._generation,
                engine=EngineCapacity(
                    n_pages=64,
                    n_slots=self._n_slots,
                    max_length=256,
                    max_step_tokens=64,
                    max_lease_steps=1,
                    vocabulary=100,
                    device="none",
                ),
            )
        )

    def compute_canary(self) -> None:
        """The gang computes the canary, if it is asked to."""
        while self.gang.condition is not ReplicaCondition.UP:
            planned = self.gang.plan(lambda s: True, None)
            assert planned is not None
            self._planned.append(planned)
            self.answer()

    def submit(self, n_tokens: int = 5) -> Sequence:
        self._number += 1
        submit = Submit(
            attempt=self._number,
            request="r",
            tokens=int32s([self._number] * n_tokens),
            n_prompt=n_tokens,
            sampling=Sampling(),
            terms=Terms(max_tokens=50, speculation=False),
        )
        sequence = Sequence("gateway/0", submit, self._number)
        self.queues.add(sequence)
        return sequence

    def plan(self) -> list[Sequence]:
        """Whom the next plan computes."""
        planned = self.gang.plan(lambda s: True, None)
        if planned is None:
            return []
        self._planned.append(planned)
        return [row.sequence for row in planned.rows]

    @property
    def has_plans(self) -> bool:
        """Is a plan on its way?"""
        return bool(self._planned)

    def answer(self) -> None:
        """The result of the oldest plan, of one step."""
        planned = self._planned.popleft()
        self.gang.apply(
            Result(
                epoch=planned.plan.epoch,
                step=planned.plan.step,
                slots=int32s([row.slot for row in planned.sampling]),
                counts=int32s([1] * len(planned.sampling)),
                ids=int32s([7] * len(planned.sampling)),
                compute_s=0.0,
            )
        )

    def refuse(self, *slots: int) -> list[tuple[Sequence, str]]:
        """The oldest plan is refused, naming these slots; the next epoch begins. Returns who ends."""
        step = self._planned[0].plan.step
        failed = StepFailed(epoch=self.gang.tracker.epoch, step=step, reason="row_counts: no", suspects=int32s(slots))
        endings = self.gang.refuse(failed)
        return self._renew(endings)

    def die(self, *causes: Cause) -> list[tuple[Sequence, str]]:
        """The gang dies, its ranks in this order (one that crashed when none is named); the next epoch begins. Returns who
        ends."""
        *before, last = causes or ("crashed",)
        assert [self.gang.rank_died(cause, is_last=False) for cause in before] == [[]] * len(before)
        assert not before or not self.gang.is_alive
        return self._renew(self.gang.rank_died(last, is_last=True))

    def _renew(self, endings: list[ForcedEnding]) -> list[tuple[Sequence, str]]:
        for ending in endings:
            self.gang.release(ending.sequence)
        self._planned.clear()
        self.begin()
        if self.passes_canary:
            self.compute_canary()
        return [(ending.sequence, ending.reason) for ending in endings]
