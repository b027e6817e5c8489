"""A scheduler's planner with a full batch and a long queue, whose plans are computed at once: what planning costs alone."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass, field

import msgspec

from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.outgoing import Outgoing
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.policies.choice import make_queues
from actors.scheduler.sequences.permission import Permission
from actors.scheduler.sequences.policy import PolicyName
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit, Tokens
from messages.generation.terms import Terms
from messages.steps import Capacity, Plan, Result
from messages.wire.arrays import int32s
from messages.wire.codec import Codec
from ops.bench.cliffs.simulated import CAPACITY

_STEP_S = 9.2e-3  # of an 8B model with 256 sequences, as measured
_N_PROMPT = 256
_LEAST_TOKENS, _MOST_TOKENS = 200, 600
_FULL_SHARE = 0.97  # plans with a smaller part of the rows do not count


@dataclass(frozen=True)
class PlanTimes:
    """Processor time of the plans with a full batch, in seconds, in the order of the plans."""

    plan_s: list[float] = field(default_factory=list)  # until the plan is a message
    send_s: list[float] = field(default_factory=list)  # until it is bytes
    apply_s: list[float] = field(default_factory=list)  # of their results, until the sequences have their tokens
    tell_s: list[float] = field(default_factory=list)  # until the tokens of their gateway are bytes


class PlannerLoad:
    """One planner with `n_running` sequences and `n_waiting` in the queue, of `n_callers` callers by turns."""

    def __init__(self, policy: PolicyName, n_running: int, n_waiting: int, n_callers: int, seed: int) -> None:
        self._now_s, self._rng = 0.0, random.Random(seed)
        self._n_running = n_running
        self._n_callers, self._n_known = n_callers, n_running + n_waiting
        self._queues = make_queues(SchedulerSettings(policy=policy, step_s=0.03), lambda: self._now_s)
        self._gang = GangView(self._queues, SchedulerSettings(policy=policy, step_s=0.03))
        capacity = msgspec.structs.replace(CAPACITY, n_slots=n_running, max_lease_steps=1)
        self._gang.begin(Capacity(epoch=self._gang.begin_epoch().epoch, memory_generation=1, engine=capacity))
        self._outgoing, self._codec = Outgoing(), Codec((Plan, Tokens))
        self._number = 0
        while self._number < self._n_known:
            self._ask()

    def measure(self, n_plans: int) -> PlanTimes:
        """Plan until `n_plans` plans had a full batch. As many sequences as end are new in the queue."""
        times = PlanTimes()
        gc.collect()
        gc.disable()
        try:
            while len(times.plan_s) < n_plans:
                self._step(times)
        finally:
            gc.enable()
        return times

    def _step(self, times: PlanTimes) -> None:
        began_s = time.process_time()
        planned = self._gang.plan(Permission(), None)
        planned_s = time.process_time()
        assert planned is not None
        self._codec.encode(planned.plan)
        sent_s = time.process_time()
        result = _result_of(planned)
        result_s = time.process_time()
        advances = self._gang.apply(result)
        applied_s = time.process_time()
        if (together := advances.together) is not None:
            self._outgoing.add_batch(together, slice(None))
        for advance in advances.others:
            self._outgoing.add(advance, result)
        if (tokens := self._outgoing.take()) is not None:
            self._codec.encode(tokens)
        told_s = time.process_time()
        if planned.n_rows >= _FULL_SHARE * self._n_running:
            times.plan_s.append(planned_s - began_s)
            times.send_s.append(sent_s - planned_s)
            times.apply_s.append(applied_s - result_s)
            times.tell_s.append(told_s - applied_s)
        self._now_s += _STEP_S
        for advance in advances.ended():
            self._gang.release(advance.row.sequence)
            self._ask()

    def _ask(self) -> None:
        rng, index = self._rng, self._number % self._n_callers
        terms = Terms(
            max_tokens=rng.randint(_LEAST_TOKENS, _MOST_TOKENS),
            speculation=False,
            caller=index.to_bytes(8) if self._n_callers > 1 else b"",
            weight=float(1 + index % 3),
            priority=index % 3 if self._n_callers > 1 else 0,
        )
        tokens = int32s([rng.randrange(10_000) for _ in range(_N_PROMPT)])
        number, request = self._number, f"r{self._number}"
        submit = Submit(number, request=request, tokens=tokens, n_prompt=_N_PROMPT, sampling=Sampling(), terms=terms)
        self._queues.add(Sequence("gateway/0", submit, number))
        self._number += 1


def _result_of(planned: PlannedStep) -> Result:
    step = planned.plan
    slots = step.row_slots[step.row_samples == 1]
    return Result(
        epoch=step.epoch,
        step=step.step,
        slots=slots,
        counts=int32s([1] * len(slots)),
        ids=int32s([7] * len(slots)),
        compute_s=_STEP_S,
    )
