"""The planner of a scheduler against a device that is a formula: no process, no clock. Pure.

The scheduler sees a result `hop_s` after its step has ended, and plans until enough is in flight, as its actor does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence as Values
from dataclasses import dataclass, field

import numpy as np

from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.policies.choice import make_queues
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.steps import Capacity, EngineCapacity, Result
from messages.wire.arrays import int32s
from ops.bench.cliffs.device import Device
from ops.bench.cliffs.workloads import TimedRequest

_VOCABULARY = 10_000
_NEVER_S = float("inf")
CAPACITY = EngineCapacity(
    n_pages=50_000, n_slots=256, max_length=131_072, max_step_tokens=8192, max_lease_steps=8, vocabulary=_VOCABULARY,
    device="simulated", lease_s=0.005,
)  # fmt: skip


@dataclass
class Simulated:
    """What a run gave. Times are simulated seconds."""

    token_times_s: dict[int, list[float]] = field(default_factory=dict)  # by number of the request, from 0


@dataclass
class _Flight:
    """A step on the device."""

    planned: PlannedStep
    index: int
    compute_s: float
    seen_s: float  # when the scheduler has its result
    wait_s: float = math.nan  # of the device, for the plan


class SimulatedRun:
    """Runs requests on one gang. `hop_s`: from the device to the scheduler, and back."""

    def __init__(
        self, settings: SchedulerSettings, device: Device, capacity: EngineCapacity = CAPACITY, hop_s: float = 0.0015
    ) -> None:
        self._device, self._hop_s = device, hop_s
        self.now_s = 0.0
        self._queues = make_queues(settings, lambda: self.now_s)
        self._gang = GangView(self._queues, settings)
        self._gang.begin(Capacity(epoch=self._gang.begin_epoch().epoch, memory_generation=1, engine=capacity))
        self._flights: deque[_Flight] = deque()
        self._wake_s = _NEVER_S  # when a plan that is held back is made
        self._free_s = 0.0  # when the device has done all that it has
        self.given = Simulated()

    def run(self, requests: Values[TimedRequest]) -> Simulated:
        """Run until every request has ended."""
        todo = deque(sorted(enumerate(requests), key=lambda item: item[1].at_s))
        rng = np.random.default_rng(0)
        while todo or self._flights or len(self._queues):
            arrives_s = todo[0][1].at_s if todo else _NEVER_S
            seen_s = self._flights[0].seen_s if self._flights else _NEVER_S
            if self._wake_s < min(seen_s, arrives_s):
                self.now_s = self._wake_s
            elif seen_s <= arrives_s and self._flights:
                self.now_s = self._flights[0].seen_s
                self._apply(self._flights.popleft())
            else:
                self.now_s = arrives_s
                number, request = todo.popleft()
                self._submit(number, request, rng)
                while todo and todo[0][1].at_s == arrives_s:
                    self._submit(*todo.popleft(), rng)
            self._plan()
        return self.given

    def terms_of(self, number: int, request: TimedRequest) -> Terms:
        """The terms of a request, by its number from 0."""
        return Terms(max_tokens=request.n_tokens, speculation=False)

    def _submit(self, number: int, request: TimedRequest, rng: np.random.Generator) -> None:
        submit = Submit(
            attempt=number,
            request=f"r{number}",
            tokens=int32s(rng.integers(0, _VOCABULARY, request.n_prompt)),
            n_prompt=request.n_prompt,
            sampling=Sampling(),
            terms=self.terms_of(number, request),
        )
        self._queues.add(Sequence("gateway/0", submit, number))
        self.given.token_times_s[number] = []

    def plan_one(self) -> PlannedStep | None:
        """The next plan; None when there is nothing to compute, or enough is in flight."""
        return self._gang.plan(lambda sequence: True, None)

    def _plan(self) -> None:
        while (planned := self.plan_one()) is not None:
            if planned.plan.is_urgent:
                self._run_beside(planned)
                continue
            there_s = self.now_s + self._hop_s
            begin_s, wait_s = max(self._free_s, there_s), there_s - self._free_s
            for index, compute_s in enumerate(self._device.step_times(planned.plan)):
                begin_s += compute_s
                self._flights.append(_Flight(planned, index, compute_s, begin_s + self._hop_s, wait_s))
                wait_s = math.nan
            self._free_s = begin_s
        wait_s = self._gang.hold.take_wait_s()
        self._wake_s = self.now_s + wait_s if wait_s else _NEVER_S

    def _run_beside(self, planned: PlannedStep) -> None:
        """An urgent step begins at once. Steps that have not ended then take longer, and what is planned later waits for it."""
        begin_s, (alone_s,) = self.now_s + self._hop_s, self._device.step_times(planned.plan)
        later = [flight for flight in self._flights if flight.seen_s - self._hop_s > begin_s]
        for flight in later:
            flight.seen_s += alone_s
        took_s = alone_s * (self._device.beside if later else 1.0)
        self._free_s = max(self._free_s + alone_s * bool(later), begin_s + took_s)
        urgent = _Flight(planned, 0, took_s, begin_s + took_s + self._hop_s)
        self._flights = deque(sorted((*self._flights, urgent), key=lambda flight: flight.seen_s))

    def _apply(self, flight: _Flight) -> None:
        rows = flight.planned.sampling
        result = Result(
            epoch=flight.planned.plan.epoch,
            step=flight.planned.plan.step + flight.index,
            slots=int32s([row.slot for row in rows]),
            counts=int32s([1] * len(rows)),
            ids=int32s([0] * len(rows)),
            compute_s=flight.compute_s,
            wait_s=flight.wait_s,
        )
        for advance in self._gang.apply(result):
            sequence = advance.row.sequence
            self.given.token_times_s[sequence.attempt].append(flight.seen_s)
            sequence.timeline.first_token_s = sequence.timeline.first_token_s or flight.seen_s
            if advance.ending is not None:
                self._gang.release(sequence)
