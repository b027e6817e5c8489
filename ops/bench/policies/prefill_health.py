"""The checks of health over long prompts, in virtual time: the real ones, over the real planner and a device that is a formula.

    liveness      of the supervisor: a rank whose step takes too long is killed
    standstill    of a gateway: work waits, and no step ends
    breaker       of a gateway: first tokens come later than this replica's own past lets expect

Nothing here is at fault, so each alarm is a false one.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence as Values
from dataclasses import dataclass, field

from actors.gateway.dispatch.breakers.replica_health import ReplicaHealth
from actors.gateway.standstill import Standstill
from actors.scheduler.settings import SchedulerSettings
from messages.steps import Plan
from ops.bench.cliffs.device import Device
from ops.bench.cliffs.simulated import Simulated, SimulatedRun
from ops.bench.cliffs.workloads import TimedRequest
from supervisor.bench.statistics import poisson_arrivals
from supervisor.child_watch import CHECK_EVERY_S
from supervisor.policy.child_spec import Deadlines
from supervisor.policy.liveness import Liveness

_BEAT_CHECKS, _TELL_CHECKS = 5, 10  # checks of the supervisor between two beats of a rank, and two reports of a scheduler
_FACTOR, _LEAST_HANG_S = 20.0, 0.5  # how long a step may take, as a rank tells it
_STALLED_S = 30.0
_DEADLINES = Deadlines(hello_s=60.0, ready_s=600.0, frozen_s=6.0, step_s=60.0, first_step_s=600.0, stop_s=10.0)
_RANK, _SCHEDULER = "worker/0.0", "scheduler/0"


@dataclass
class Alarms:
    """What the checks have said of prefills that were in order."""

    n_prefills: int = 0
    longest_step_s: float = 0.0
    longest_wait_s: float = 0.0  # for a first token
    virtual_s: float = 0.0
    kills: list[str] = field(default_factory=list)  # the reasons
    standstills: int = 0
    late: int = 0  # attempts
    openings: int = 0  # of the breaker


@dataclass(frozen=True)
class _DeviceStep:
    """A step on the device."""

    begin_s: float
    end_s: float
    limit_s: float


class UnevenDevice(Device):
    """Steps take 10 % more or less; one in a hundred takes three times as long, as beside other work of the host."""

    def step_times(self, plan: Plan) -> list[float]:
        chance = random.Random(plan.step)
        return [
            s * chance.lognormvariate(0.0, 0.1) * (3.0 if chance.random() < 0.01 else 1.0) for s in super().step_times(plan)
        ]


class WatchedPrefills(SimulatedRun):
    """One replica under the checks."""

    def __init__(self) -> None:
        super().__init__(SchedulerSettings(step_s=0.03), UnevenDevice())
        self.alarms = Alarms()
        self._liveness, self._standstill, self._health = Liveness(CHECK_EVERY_S), Standstill(_STALLED_S), ReplicaHealth()
        self._liveness.spawned(_RANK, _DEADLINES, 0.0)
        self._liveness.became_ready(_RANK, 0.0)
        self._steps: deque[_DeviceStep] = deque()
        self._n_ended = 0
        self._n_checks = 0
        self._work: dict[int, int] = {}  # tokens by attempt that has not ended
        self._is_still = False

    def watch(self, requests: Values[TimedRequest]) -> Alarms:
        """Compute all requests; returns the alarms."""
        self._requests = requests
        given: Simulated = self.run(requests)
        waits_s = [times[0] - requests[n].at_s for n, times in given.token_times_s.items()]
        self.alarms.n_prefills, self.alarms.longest_wait_s, self.alarms.virtual_s = len(waits_s), max(waits_s), self.now_s
        self.alarms.openings = self._health.n_openings(_SCHEDULER)
        return self.alarms

    def _submit(self, number: int, request: TimedRequest, rng: object) -> None:
        super()._submit(number, request, rng)  # pyright: ignore[reportArgumentType]  # numpy's generator
        self._work[number] = request.n_prompt + request.n_tokens
        self._health.sent(_SCHEDULER, number, sum(self._work.values()), 0, self.now_s, is_probe=False)

    def _plan(self) -> None:
        self._look()
        n_before = len(self._flights)
        super()._plan()
        for flight in list(self._flights)[n_before:]:
            end_s = flight.seen_s - self._hop_s
            limit_s = max(_FACTOR * flight.planned.plan.expected_s, _LEAST_HANG_S) if flight.planned.plan.expected_s else 0.0
            self._steps.append(_DeviceStep(end_s - flight.compute_s, end_s, limit_s))
            self.alarms.longest_step_s = max(self.alarms.longest_step_s, flight.compute_s)

    def _look(self) -> None:
        """Let the checks see the time up to now."""
        while (self._n_checks + 1) * CHECK_EVERY_S <= self.now_s:
            self._n_checks += 1
            self._look_at(self._n_checks * CHECK_EVERY_S)

    def _look_at(self, now_s: float) -> None:
        while self._steps and self._steps[0].end_s <= now_s:
            self._steps.popleft()
            self._n_ended += 1
        self._work = {n: tokens for n, tokens in self._work.items() if self._queues.find("gateway/0", n) is not None}
        running = self._steps[0] if self._steps and self._steps[0].begin_s <= now_s else None
        if self._n_checks % _BEAT_CHECKS == 0:
            busy_s, limit_s = (now_s - running.begin_s, running.limit_s) if running is not None else (0.0, 0.0)
            self._liveness.beat(_RANK, self._n_ended, busy_s, now_s, limit_s)
        self.alarms.kills += [child.reason for child in self._liveness.overdue(now_s)]
        if self._n_checks % _TELL_CHECKS == 0:
            self._standstill.heard(_SCHEDULER, self._n_ended, now_s)
            self._standstill.update({_SCHEDULER: len(self._work)}, now_s)
            was_still, self._is_still = self._is_still, bool(self._standstill.lasting(now_s))
            self.alarms.standstills += self._is_still and not was_still
        times = self.given.token_times_s
        self.alarms.late += self._health.look(_SCHEDULER, lambda number: len(times[number]), now_s)[0]


def long_prefills(n: int, least: int, most: int, per_s: float, chance: random.Random) -> list[TimedRequest]:
    """Prompts of log-uniform lengths; one in five gets an answer of 64 tokens, the others of one."""
    arrivals = poisson_arrivals(per_s, chance)
    return [
        TimedRequest(
            next(arrivals), int(math.exp(chance.uniform(math.log(least), math.log(most)))), 64 if chance.random() < 0.2 else 1
        )
        for _ in range(n)
    ]
