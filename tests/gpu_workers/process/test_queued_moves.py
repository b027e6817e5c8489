"""Moves that are queued beside plans are answered in their order when they are done, and keep no plan and no result."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.gang_agreement import epoch_id
from gpu_workers.process.step_thread import StepThread
from gpu_workers.vault.host_pages import HostPages
from gpu_workers.vault.page_places import DoneMoves, QueuedMoves
from messages.caches.page_moves import MovePages
from messages.steps import Reset
from tests.support.pages.tier_bench import moves_of
from tests.support.waiting import until
from tests.support.workers.small_scheduler import Row
from tests.support.workers.worker_stage import SETTINGS, writer

_DEADLINE_S = 60.0


class _Moves(QueuedMoves):
    """Done when the test says so."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.error: Exception | None = None

    def wait(self) -> DoneMoves:
        assert self.is_done.wait(_DEADLINE_S)
        if self.error is not None:
            raise self.error
        return DoneMoves([1], 0.25)


class _SlowPlaces(HostPages):
    def __init__(self, engine: HashChainEngine) -> None:
        super().__init__(engine._pages.reshape(-1, 16).view(np.uint8), 4)
        self.queued: list[_Moves] = []

    def queue(self, moves: MovePages) -> _Moves:
        self.queued.append(_Moves())
        return self.queued[-1]


def _moves(number: int) -> MovePages:
    return msgspec.structs.replace(moves_of([], [(0, 1, 7), (1, 2, 9)]), number=number)


def _started(seen: list[str]) -> tuple[StepThread[Any], _SlowPlaces]:
    engine = HashChainEngine(SETTINGS)
    engine.max_in_flight = 2
    engine.host_tier = places = _SlowPlaces(engine)
    events: Any = SimpleNamespace(
        on_loaded=lambda capacity: None,
        on_reset=lambda epoch: None,
        on_result=lambda epoch, result: seen.append(f"result {result.step}"),
        on_moved=lambda epoch, moved: seen.append(f"moved {moved.number}: {moved.failed.tolist()} {moved.load_s}"),
        on_fault=lambda doing, error: seen.append(f"fault: {doing}: {error}"),
    )
    steps = StepThread(lambda report: engine, events)
    steps.start()
    return steps, places


async def test_results_come_while_copies_are_on_their_way_and_answers_in_order() -> None:
    seen: list[str] = []
    steps, places = _started(seen)
    plans = writer()
    first = plans.add(range(8))
    for command in (Reset(epoch=1), _moves(1), _moves(2), plans.write_plan([Row(first, 8)])):
        steps.submit(epoch_id(1, 1), command)
    await until(lambda: seen == ["result 0"])
    assert not steps.is_idle
    places.queued[1].is_done.set()
    steps.submit(epoch_id(1, 1), plans.write_plan([Row(first)]))
    await until(lambda: "result 1" in seen)
    places.queued[0].is_done.set()
    await until(lambda: steps.is_idle and len(seen) == 4)
    assert seen[2:] == ["moved 1: [1] 0.25", "moved 2: [1] 0.25"]
    assert steps.stop(_DEADLINE_S)


async def test_an_error_of_the_device_while_it_copies_is_a_fault() -> None:
    seen: list[str] = []
    steps, places = _started(seen)
    steps.submit(epoch_id(1, 1), Reset(epoch=1))
    steps.submit(epoch_id(1, 1), _moves(3))
    await until(lambda: len(places.queued) == 1)
    places.queued[0].error = RuntimeError("an illegal memory access")
    places.queued[0].is_done.set()
    await until(lambda: seen == ["fault: moves 3 of epoch 1: an illegal memory access"])
