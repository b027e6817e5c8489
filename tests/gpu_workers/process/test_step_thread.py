"""A step thread whose engine raises an error distrusts the memory first; one that waits for other ranks is not hung soon; one
that has refused a plan computes nothing until the next Reset."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpu_workers.engine import RankLost
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process import step_thread
from gpu_workers.process.gang_agreement import EpochId, epoch_id
from gpu_workers.process.step_thread import StepThread
from messages.steps import Plan, Reset, Result
from messages.wire.arrays import EMPTY_I32, int32s
from tests.support.waiting import DEADLINE_S, until
from tests.support.workers.small_scheduler import Row
from tests.support.workers.worker_stage import SETTINGS, writer


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


async def test_a_rank_that_has_lost_another_one_keeps_its_memory_until_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor ends it at once. If nobody does, it reports a fault like any other."""
    seen, over = list[str](), asyncio.Event()

    def lose(report: Any) -> Any:
        raise RankLost("closed")

    def on_fault(doing: str, error: BaseException) -> None:
        seen.append(f"fault: {error}")
        over.set()

    monkeypatch.setattr(step_thread.time, "sleep", lambda s: seen.append(f"waits {s:g} s"))
    events: Any = SimpleNamespace(on_fault=on_fault)
    StepThread(lose, events, on_error=lambda: seen.append("distrusted")).start()
    async with asyncio.timeout(60.0):
        await over.wait()
    assert seen == ["waits 2 s", "distrusted", "fault: closed"]


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


@pytest.mark.parametrize("max_in_flight", [1, 2])
async def test_plans_after_a_refused_one_write_to_no_page_until_the_next_reset(max_in_flight: int) -> None:
    """The refused plan was to give the slot another page table. It has that of the sequence before, whose pages the ledger may
    still know: the next scheduler adopts them if this one dies before it hears of the refusal."""
    engine, seen = HashChainEngine(SETTINGS), list[str]()
    engine.max_in_flight = max_in_flight
    events: Any = SimpleNamespace(
        on_loaded=lambda capacity: None,
        on_reset=lambda epoch: seen.append("reset"),
        on_result=lambda epoch, result: seen.append(f"result {result.step}"),
        on_refused=lambda epoch, failure: seen.append(f"refused {failure.step}"),
    )
    steps = StepThread(lambda report: engine, events)
    steps.start()
    plans = writer()
    first = plans.add(range(8))
    steps.submit(epoch_id(1, 1), Reset(epoch=1))
    steps.submit(epoch_id(1, 1), plans.write_plan([Row(first, 8)]))
    await until(lambda: "result 0" in seen)
    before = engine._pages.copy()

    plans.drop(first, n_shared=16)  # its page is kept
    second = plans.add(range(20, 25))
    assert second.slot == first.slot
    bad = msgspec.structs.replace(plans.write_plan([Row(second, 5)]), row_starts=int32s([50]))
    for plan in (bad, plans.write_plan([Row(second)]), plans.write_plan([Row(second)], n_steps=2)):
        steps.submit(epoch_id(1, 1), plan)
    steps.submit(epoch_id(1, 2), Reset(epoch=2))
    await until(lambda: seen.count("reset") == 2)
    assert seen == ["reset", "result 0", "refused 1", "reset"]
    assert engine._pages.tolist() == before.tolist()

    steps.submit(epoch_id(1, 2), plans.write_plan([Row(plans.add(range(4)), 4)]))
    await until(lambda: seen[-1] == "result 5")
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)


class _HeldEngine(HashChainEngine):
    """Its device ends a step when the test lets it."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.max_in_flight, self.may_end = 2, threading.Semaphore(0)

    def collect(self, launched: Any) -> Any:
        self.may_end.acquire()
        return super().collect(launched)


async def test_a_result_says_whether_the_device_had_to_wait_for_its_plan() -> None:
    engine, waits, launched = _HeldEngine(), list[float](), list[int]()
    events: Any = SimpleNamespace(
        on_loaded=lambda capacity: None,
        on_reset=lambda epoch: None,
        on_result=lambda epoch, result: waits.append(result.wait_s),
    )
    launch = engine.launch
    engine.launch = lambda plan: (launch(plan), launched.append(plan.step))[0]  # type: ignore[method-assign]
    steps = StepThread(lambda report: engine, events)
    steps.start()
    plans = writer()
    steps.submit(epoch_id(1, 1), Reset(epoch=1))
    row = plans.add(range(4))
    steps.submit(epoch_id(1, 1), plans.write_plan([Row(row, 4)]))
    steps.submit(epoch_id(1, 1), plans.write_plan([Row(row)], n_steps=2))
    await until(lambda: len(launched) == 2)
    for _ in range(2):
        engine.may_end.release()
    await until(lambda: len(waits) == 3)
    assert waits[1] < 0.0  # it was launched before the first one had ended
    assert math.isnan(waits[2])  # of the same plan

    steps.submit(epoch_id(1, 1), plans.write_plan([Row(row)]))
    engine.may_end.release()
    await until(lambda: len(waits) == 4)
    assert waits[3] > 0.0
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)


async def test_an_engine_that_works_inside_its_launch_says_nothing_about_waits() -> None:
    waits = list[float]()
    events: Any = SimpleNamespace(
        on_loaded=lambda capacity: None,
        on_reset=lambda epoch: None,
        on_result=lambda epoch, result: waits.append(result.wait_s),
    )
    steps = StepThread(lambda report: HashChainEngine(SETTINGS), events)
    steps.start()
    plans = writer()
    steps.submit(epoch_id(1, 1), Reset(epoch=1))
    steps.submit(epoch_id(1, 1), plans.write_plan([Row(plans.add(range(4)), 4)]))
    await until(lambda: len(waits) == 1)
    assert math.isnan(waits[0])
    assert await asyncio.to_thread(steps.stop, DEADLINE_S)
