"""A step thread whose engine raises an error distrusts the memory first; one that waits for other ranks is not hung soon."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

from gpu_workers.process.gang_agreement import EpochId, epoch_id
from gpu_workers.process.step_thread import StepThread
from messages.steps import Plan, Result
from messages.wire.arrays import EMPTY_I32
from tests.support.waiting import DEADLINE_S, until


def _plan(expected_s: float) -> Plan:
    return Plan(
        epoch=1, step=1, n_steps=1, new=[], new_tokens=EMPTY_I32, page_slots=EMPTY_I32, page_indices=EMPTY_I32,
        page_ids=EMPTY_I32, row_slots=EMPTY_I32, row_starts=EMPTY_I32, row_counts=EMPTY_I32, row_samples=EMPTY_I32,
        expected_s=expected_s,
    )  # fmt: skip


def fail(report: Any) -> Any:
    raise RuntimeError("device")


async def test_memory_is_distrusted_before_the_fault_is_reported() -> None:
    seen, over = list[str](), asyncio.Event()

    def on_fault(doing: str, error: BaseException) -> None:
        seen.append(f"fault: {error}")
        over.set()

    events: Any = SimpleNamespace(on_fault=on_fault)
    StepThread(fail, events, on_error=lambda: seen.append("distrusted")).start()
    async with asyncio.timeout(60.0):
        await over.wait()
    assert seen == ["distrusted", "fault: device"]


async def test_a_step_that_waits_for_the_plan_of_another_rank_has_more_time_than_one_that_runs() -> None:
    """A lost plan is sent again within half a second, perhaps over a new connection two seconds later."""
    waits, may_run, runs, goes_on, ended = (threading.Event() for _ in range(5))

    def wait_for_others(epoch: EpochId, plan: Plan) -> bool:
        waits.set()
        return may_run.wait(DEADLINE_S)

    def launch(plan: Plan) -> list[Result]:
        runs.set()
        goes_on.wait(DEADLINE_S)
        return []

    engine: Any = SimpleNamespace(
        max_in_flight=1,
        is_compiling=False,
        capacity=lambda: None,
        launch=launch,
        collect=lambda launched: launched,
        look_ahead=lambda: None,
        close=ended.set,
    )
    events: Any = SimpleNamespace(on_loaded=lambda capacity: None)
    steps = StepThread(lambda report: engine, events, wait_for_others)
    steps.start()
    steps.submit(epoch_id(1, 1), _plan(0.001))
    await until(waits.is_set)
    assert steps.limit_s() == 5.0
    waited_s = steps.busy_s()
    await until(lambda: steps.busy_s() > waited_s + 0.05)
    began_s = time.monotonic()
    may_run.set()
    await until(runs.is_set)
    assert steps.limit_s() == 0.5
    assert steps.busy_s() <= time.monotonic() - began_s, "the wait is not counted"
    goes_on.set()
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)
