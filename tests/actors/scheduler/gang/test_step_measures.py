"""What a scheduler learns from the end of a step: a device that waits for its plans gets them earlier."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import pytest

from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.settings import SchedulerSettings
from messages.steps import Result
from messages.wire.arrays import int32s
from ops.bench.cliffs.device import Device
from ops.bench.cliffs.simulated import SimulatedRun
from ops.bench.cliffs.workloads import TimedRequest
from tests.support.planner_bench import PlannerBench

_SHORT_STEPS = replace(Device(), flop_per_token=3.5e9, weights_s=1e-3, decode_key_s=1e-8)  # a device four times as fast
_REQUESTS = [TimedRequest(at_s=0.0, n_prompt=200, n_tokens=150) for _ in range(64)]


def took_s(hop_s: float, plans_in_flight: int = 2) -> float:
    """When the last token comes."""
    run = SimulatedRun(SchedulerSettings(step_s=0.03, plans_in_flight=plans_in_flight), _SHORT_STEPS, hop_s=hop_s)
    return max(times[-1] for times in run.run(_REQUESTS).token_times_s.values())


@pytest.mark.parametrize("hop_s", [0.003, 0.005])
def test_a_slow_host_does_not_keep_the_device_waiting(hop_s: float) -> None:
    assert took_s(hop_s) < 1.15 * took_s(hop_s=0.0005)
    assert took_s(hop_s, plans_in_flight=1) > 2.0 * took_s(hop_s=0.0005)  # the same host without plans ahead


def waited(wait_s: float, ahead: int) -> int:
    """How many plans are sent ahead after steps of 4 ms that the device has waited for, with `ahead` plans in flight."""
    bench, plans = PlannerBench({"plans_in_flight": 2}, lease_s=0.004), deque[PlannedStep]()
    bench.add([1] * 4, max_tokens=500)

    def send(most: int) -> None:
        while len(plans) < most and (planned := bench.gang.plan(lambda sequence: True, None)) is not None:
            plans.append(planned)

    for _ in range(40):
        send(ahead)
        done = plans.popleft()
        slots, ones = int32s([row.slot for row in done.sampling]), int32s([1] * len(done.sampling))
        bench.gang.apply(
            Result(
                epoch=done.plan.epoch, step=done.plan.step, slots=slots, counts=ones, ids=ones, compute_s=0.004, wait_s=wait_s
            )
        )
    send(9)
    return len(plans)


def test_plans_that_came_too_late_are_sent_earlier() -> None:
    assert waited(wait_s=0.002, ahead=2) == 4
    assert waited(wait_s=-0.002, ahead=2) == 2
    assert waited(wait_s=math.nan, ahead=2) == 2


def test_a_device_that_had_nothing_to_compute_has_missed_no_plan() -> None:
    assert waited(wait_s=0.01, ahead=1) == 2
