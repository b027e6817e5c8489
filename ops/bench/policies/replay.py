"""Replays a trace with one policy, in virtual time: the device is a formula. What planning costs is measured here."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Values
from dataclasses import dataclass, field
from typing import Any

import msgspec

from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.sequences.policy import PolicyName
from actors.scheduler.settings import SchedulerSettings
from messages.generation.terms import Terms
from ops.bench.cliffs.device import Device
from ops.bench.cliffs.simulated import CAPACITY, SimulatedRun
from ops.bench.cliffs.workloads import TimedRequest
from ops.bench.policies.traces import AskedRequest

_OF_POLICY = ("arrived", "ended", "started", "stopped", "planned", "victim_for", "take_late", "may_hurry", "longest_step_s")
_OF_QUEUE = ("first", "add", "remove")


@dataclass
class ReplayedTrace:
    """What came of a trace. Times are virtual seconds."""

    requests: Values[AskedRequest]
    token_times_s: dict[int, list[float]]  # by number of the request
    served: list[tuple[float, bytes, int]]  # (time, caller, tokens that a plan computes)
    n_displaced: int = 0
    n_beside: int = 0  # urgent plans that ran beside others
    n_late: int = 0
    plan_s: list[float] = field(default_factory=list)  # processor time of each plan
    policy_s: list[float] = field(default_factory=list)  # of it, in the policy and its waiting queue
    n_rows: list[int] = field(default_factory=list)  # of each plan
    step_s: list[float] = field(default_factory=list)  # of the device, expected, of each plan's steps

    @property
    def wall_s(self) -> float:
        """Until the last token."""
        return max(times[-1] for times in self.token_times_s.values() if times)


class PolicyRun(SimulatedRun):
    """One trace under one policy. Requests that arrive after `end_s` are not there, and nothing is planned after it."""

    def __init__(
        self, policy: PolicyName, end_s: float = float("inf"), urgent_step_s: float = 0.0, beside: float = 0.0
    ) -> None:
        """beside: how many times as long as alone an urgent step takes beside others; 0: the device runs one step at a time."""
        settings = SchedulerSettings(policy=policy, step_s=0.03, urgent_step_s=urgent_step_s)
        capacity = msgspec.structs.replace(CAPACITY, beside_tokens=CAPACITY.max_step_tokens if beside else 0)
        super().__init__(settings, Device(beside=beside or 1.0), capacity)
        self._end_s = end_s
        self._policy_s = 0.0  # since the last plan
        for owner, names in ((self._queues.policy, _OF_POLICY), (self._queues.waiting, _OF_QUEUE)):
            for name in names:
                setattr(owner, name, self._timed(getattr(owner, name)))
        self.replayed = ReplayedTrace([], {}, [])

    def replay(self, requests: Values[AskedRequest]) -> ReplayedTrace:
        """Run the trace."""
        self.replayed = ReplayedTrace(requests, {}, [])
        self.run(requests)
        self.replayed.token_times_s = self.given.token_times_s
        self.replayed.n_late = self._queues.policy.n_late
        return self.replayed

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, with its time counted."""

        def timed(*args: Any) -> Any:
            began_s = time.thread_time()
            given = call(*args)
            self._policy_s += time.thread_time() - began_s
            return given

        return timed

    def terms_of(self, number: int, request: TimedRequest) -> Terms:
        assert isinstance(request, AskedRequest)
        return request.whole_terms()

    def plan_one(self) -> PlannedStep | None:
        if self.now_s > self._end_s:
            for sequence in [*self._queues.running, *self._queues.waiting]:
                self._gang.release(sequence)
            return None
        began_s = time.process_time()
        self._queues.policy.take_late()
        planned = super().plan_one()
        took_s = time.process_time() - began_s
        if planned is not None:
            self._count(planned, took_s)
        return planned

    def _count(self, planned: PlannedStep, took_s: float) -> None:
        given = self.replayed
        given.n_displaced += planned.n_displaced
        given.n_beside += planned.plan.is_urgent
        given.plan_s.append(took_s)
        given.policy_s.append(self._policy_s)
        self._policy_s = 0.0
        given.n_rows.append(planned.n_rows)
        given.step_s.append(sum(Device().step_times(planned.plan)))
        tokens: dict[bytes, int] = {}
        for row in planned.rows:
            caller = row.sequence.terms.caller
            tokens[caller] = tokens.get(caller, 0) + row.count + planned.plan.n_steps - 1
        given.served += [(self.now_s, caller, n_tokens) for caller, n_tokens in tokens.items()]
