"""A step thread moves pages in the order of plans, and not after a plan that did not run: its pages lack their content."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.gang_agreement import EpochId, epoch_id
from gpu_workers.process.step_thread import StepThread
from messages.caches.page_moves import MovePages
from messages.steps import Plan, Reset
from messages.wire.arrays import int32s, uint64s
from tests.support.waiting import until
from tests.support.workers.small_scheduler import Row
from tests.support.workers.worker_stage import SETTINGS, writer

_TIERED = msgspec.structs.replace(SETTINGS, host_cache_bytes=4096)
_HASH = 77


def _moves(number: int, page: int, stores: bool) -> MovePages:
    """Store a page, or load what was stored into one."""
    stored, loaded = ([page], []) if stores else ([], [page])
    return MovePages(
        epoch=1,
        number=number,
        stored_pages=int32s(stored),
        stored_places=int32s([3] * len(stored)),
        stored_hashes=uint64s([_HASH] * len(stored)),
        loaded_places=int32s([3] * len(loaded)),
        loaded_pages=int32s(loaded),
        loaded_hashes=uint64s([_HASH] * len(loaded)),
    )


def _started(engine: HashChainEngine, seen: list[str], may_run: Any = lambda epoch, plan: True) -> StepThread[Any]:
    events: Any = SimpleNamespace(
        on_loaded=lambda capacity: None,
        on_reset=lambda epoch: seen.append("reset"),
        on_result=lambda epoch, result: seen.append(f"result {result.step}"),
        on_refused=lambda epoch, failure: seen.append(f"refused {failure.step}"),
        on_moved=lambda epoch, moved: seen.append(f"moved {moved.number}: {len(moved.failed)} failed"),
    )
    steps = StepThread(lambda report: engine, events, may_run)
    steps.start()
    return steps


@pytest.mark.parametrize("max_in_flight", [1, 2])
async def test_a_page_comes_back_with_what_the_plan_before_its_store_has_written(max_in_flight: int) -> None:
    engine, seen = HashChainEngine(_TIERED), list[str]()
    engine.max_in_flight = max_in_flight
    steps, plans = _started(engine, seen), writer()
    first = plans.add(range(8))
    plan = plans.write_plan([Row(first, 8)])
    page = int(plan.page_ids[0])
    other = page - 1 if page else page + 1
    for command in (Reset(epoch=1), plan, _moves(1, page, stores=True), _moves(2, other, stores=False)):
        steps.submit(epoch_id(1, 1), command)
    await until(lambda: "moved 2: 0 failed" in seen and steps.is_idle)
    pages = engine._pages.reshape(-1, 16)
    assert pages[page, :8].all()
    assert pages[other].tolist() == pages[page].tolist()
    steps.submit(epoch_id(1, 2), Reset(epoch=2, is_memory_suspect=True))
    steps.submit(epoch_id(1, 2), _moves(3, other, stores=False))
    await until(lambda: "moved 3: 1 failed" in seen)


@pytest.mark.parametrize("why", ["refused", "skipped"])
async def test_nothing_is_moved_after_a_plan_that_did_not_run(why: str) -> None:
    def may_run(epoch: EpochId, plan: Plan) -> bool:
        return why == "refused" or plan.step == 0

    engine, seen = HashChainEngine(_TIERED), list[str]()
    steps, plans = _started(engine, seen, may_run), writer()
    first = plans.add(range(8))
    good = plans.write_plan([Row(first, 8)])
    other = plans.write_plan([Row(first)])
    bad = msgspec.structs.replace(other, row_starts=int32s([50])) if why == "refused" else other
    for command in (Reset(epoch=1), good, bad, _moves(1, 0, stores=True)):
        steps.submit(epoch_id(1, 1), command)
    steps.submit(epoch_id(1, 2), Reset(epoch=2))
    steps.submit(epoch_id(1, 2), _moves(2, 0, stores=False))
    await until(lambda: "moved 2: 1 failed" in seen)
    assert not [event for event in seen if event.startswith("moved 1")]
