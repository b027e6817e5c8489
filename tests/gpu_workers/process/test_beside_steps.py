"""An urgent plan beside others on a step thread: launched whatever is in flight, reported when it ends, before later ones."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_workers.engine import PlanRefused
from gpu_workers.process.gang_agreement import epoch_id
from gpu_workers.process.step_thread import StepThread
from messages.steps import Plan, Reset, Result
from messages.wire.arrays import EMPTY_I32
from tests.support.waiting import DEADLINE_S, until

EPOCH = epoch_id(1, 1)


def plan_of(step: int, *, is_urgent: bool = False, expected_s: float = 1.0) -> Plan:
    return Plan(
        epoch=1, step=step, n_steps=1, new=[], new_tokens=EMPTY_I32, page_slots=EMPTY_I32, page_indices=EMPTY_I32,
        page_ids=EMPTY_I32, row_slots=EMPTY_I32, row_starts=EMPTY_I32, row_counts=EMPTY_I32, row_samples=EMPTY_I32,
        expected_s=expected_s, is_urgent=is_urgent,
    )  # fmt: skip


class Device:
    """An engine whose steps end when the test says so."""

    max_in_flight, is_compiling, late_compilations = 2, False, 0

    def __init__(self, runs_beside: bool = True) -> None:
        self.launched: list[int] = []
        self.refused: set[int] = set()
        self.ends: defaultdict[int, threading.Event] = defaultdict(threading.Event)
        self.capacity = lambda: SimpleNamespace(runs_beside=runs_beside)
        self.reset = self.look_ahead = self.close = lambda *arguments: None

    def launch(self, plan: Plan) -> Plan:
        if plan.step in self.refused:
            raise PlanRefused("refused")
        self.launched.append(int(plan.step))
        return plan

    def collect(self, plan: Plan) -> Iterator[Result]:
        assert self.ends[int(plan.step)].wait(DEADLINE_S)
        yield Result(epoch=1, step=plan.step, slots=EMPTY_I32, counts=EMPTY_I32, ids=EMPTY_I32, compute_s=0.1)


@pytest.fixture
def seen() -> list[str]:
    return []


def thread_of(device: Any, seen: list[str]) -> StepThread[Any]:
    events: Any = SimpleNamespace(
        on_loaded=lambda capacity: None,
        on_reset=lambda epoch: seen.append("reset"),
        on_result=lambda epoch, result: seen.append(f"result {result.step}"),
        on_refused=lambda epoch, failure: seen.append(f"refused {failure.step}"),
        on_fault=lambda doing, error: seen.append(f"fault {error}"),
    )
    steps: StepThread[Any] = StepThread(lambda report: device, events)
    steps.start()
    steps.submit(EPOCH, Reset(epoch=1))
    return steps


async def test_it_waits_for_no_other_and_later_ones_wait_for_it(seen: list[str]) -> None:
    device = Device()
    steps = thread_of(device, seen)
    for plan in (plan_of(1), plan_of(2), plan_of(3, is_urgent=True)):
        steps.submit(EPOCH, plan)
    await until(lambda: device.launched == [1, 2, 3])
    assert steps.limit_s() == 40.0  # of both
    device.ends[1].set()
    await until(lambda: "result 1" in seen)
    steps.submit(EPOCH, plan_of(4))
    await until(lambda: device.launched == [1, 2, 3, 4])
    device.ends[2].set()
    device.ends[4].set()
    await until(lambda: "result 2" in seen)
    assert not steps.is_idle
    device.ends[3].set()
    await until(lambda: "result 4" in seen)
    assert seen == ["reset", "result 1", "result 2", "result 3", "result 4"]
    await until(lambda: steps.is_idle)
    assert steps.steps == 4
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)


async def test_its_result_may_come_first_and_a_reset_waits_for_its_end(seen: list[str]) -> None:
    device = Device()
    steps = thread_of(device, seen)
    steps.submit(EPOCH, plan_of(1))
    steps.submit(EPOCH, plan_of(2, is_urgent=True))
    device.ends[2].set()
    await until(lambda: "result 2" in seen)
    steps.submit(EPOCH, plan_of(3, is_urgent=True, expected_s=2.0))
    device.ends[1].set()
    await until(lambda: "result 1" in seen)
    await until(lambda: steps.limit_s() == 40.0)  # of the urgent one, which is alone
    assert steps.busy_s() > 0.0
    steps.submit(EPOCH, Reset(epoch=2))
    device.ends[3].set()
    await until(lambda: seen.count("reset") == 2)
    assert seen == ["reset", "result 2", "result 1", "result 3", "reset"]
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)


async def test_a_refused_one_lets_nothing_run_after_it(seen: list[str]) -> None:
    device = Device()
    device.refused.add(2)
    steps = thread_of(device, seen)
    for plan in (plan_of(1), plan_of(2, is_urgent=True), plan_of(3)):
        steps.submit(EPOCH, plan)
    device.ends[1].set()
    await until(lambda: steps.is_idle)
    assert sorted(seen) == ["refused 2", "reset", "result 1"]
    assert device.launched == [1]
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)


async def test_an_engine_that_cannot_runs_it_in_its_turn(seen: list[str]) -> None:
    device = Device(runs_beside=False)
    steps = thread_of(device, seen)
    for plan in (plan_of(1), plan_of(2, is_urgent=True)):
        steps.submit(EPOCH, plan)
    device.ends[2].set()
    await until(lambda: device.launched == [1, 2])
    device.ends[1].set()
    await until(lambda: "result 2" in seen)
    assert seen == ["reset", "result 1", "result 2"]
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)
