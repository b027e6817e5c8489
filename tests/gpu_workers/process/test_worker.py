"""A worker's life: hello before loading, ready, plans in order, refusals, faults, stop; over both posts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from gpu_workers.engine import Engine, ReportLoading
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.engine_loading import BuildEngine
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.rank_vault import RankVault
from messages.lifecycle import lifecycle
from messages.steps import Capacity, GrammarPrepared, Idle, Plan, PrepareGrammar, Reset, Result, StepFailed
from messages.wire.arrays import int32s
from messages.wire.message import Message
from tests.support.workers.small_scheduler import GREEDY, Row, SmallScheduler
from tests.support.workers.worker_stage import DEADLINE_S, SETTINGS, MemoryPost, Stage, ZmqPost, writer

STEPS = "tardigrade_worker_steps"


@pytest.fixture(params=[MemoryPost, ZmqPost], ids=["memory", "zmq"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    make = request.param()
    stage = Stage(
        make,
        tmp_path,
        make.mailbox("supervisor/0", 1, make.endpoint(tmp_path, "supervisor")),
        make.mailbox("scheduler/0", 3, make.endpoint(tmp_path, "scheduler")),
    )
    yield stage
    for task in (*stage.readers, *([stage.worker] if stage.worker else [])):
        task.cancel()
    await asyncio.gather(*stage.readers, *([stage.worker] if stage.worker else []), return_exceptions=True)
    await stage.supervisor.close()
    await stage.scheduler.close()


def held_by(gate: threading.Event) -> BuildEngine:
    """An engine whose steps end when the gate opens."""

    class Held(HashChainEngine):
        def collect(self, launched: Any) -> Iterator[Result]:
            gate.wait(DEADLINE_S)
            return super().collect(launched)

    return lambda settings, *_: Held(settings)


async def test_a_sequence_runs_to_the_oracle(stage: Stage) -> None:
    plans = await stage.begin()
    capacity = await stage.expect("scheduler", Capacity)
    engine = capacity.engine
    assert (capacity.epoch, engine.n_pages, engine.n_slots, engine.max_lease_steps) == (1, 64, 4, 4)
    s = plans.add([1, 2, 3])
    stage.tell(plans.write_plan([Row(s, 3)]))
    stage.tell(plans.write_plan([Row(s)]))  # before the first result is back
    stage.tell(plans.write_plan([Row(s)], n_steps=4))
    results = [await stage.expect("scheduler", Result) for _ in range(6)]
    assert [r.step for r in results] == [0, 1, 2, 3, 4, 5]
    assert [int(r.ids[0]) for r in results] == hash_chain_tokens([1, 2, 3], 6, 0, 32_768)
    assert await stage.stop() == 0


async def test_beats_carry_steps_and_metrics(stage: Stage) -> None:
    plans = await stage.begin()
    s = plans.add([1, 2, 3])
    stage.tell(plans.write_plan([Row(s, 3)]))
    await stage.expect("scheduler", Result)
    beat = await stage.expect("supervisor", lifecycle.Progress)
    while not (families := {family.name: family for family in beat.metrics}) or not families[STEPS].samples[0].value:
        beat = await stage.expect("supervisor", lifecycle.Progress)  # the first beats may be of before the result
    assert (beat.steps, beat.busy_s) == (1, 0.0)
    assert families[STEPS].samples[0].value == 1
    assert families["tardigrade_worker_tokens_computed"].samples[0].value == 3
    assert {"tardigrade_worker_rows", "tardigrade_worker_step_seconds"} <= families.keys()


async def test_a_rank_says_that_it_is_idle_and_again_after_it_has_computed(stage: Stage) -> None:
    plans = await stage.begin()
    await stage.expect("scheduler", Idle)
    stage.tell(plans.write_plan([Row(plans.add([1, 2, 3]), 3)]))
    await stage.expect("scheduler", Result)
    await stage.expect("scheduler", Idle)


async def test_a_grammar_is_compiled_beside_a_step_and_answered_when_it_is_done(stage: Stage) -> None:
    compiled, asked = Future[None](), list[str]()

    class Compiling(HashChainEngine):
        def prepare_grammar(self, grammar: str) -> list[Future[None]]:
            asked.append(grammar)
            return [compiled]

    plans = await stage.begin(build=lambda settings, *_: Compiling(settings))
    epoch = (await stage.expect("scheduler", Capacity)).epoch
    stage.tell(PrepareGrammar(epoch=epoch, number=7, text="slow"))
    stage.tell(PrepareGrammar(epoch=epoch + 1, number=8, text="of another epoch"))
    stage.tell(plans.write_plan([Row(plans.add([1, 2, 3]), 3)]))
    await stage.expect("scheduler", Result)
    compiled.set_exception(ValueError("no vocabulary"))  # a step that needs it says so
    assert await stage.expect("scheduler", GrammarPrepared) == GrammarPrepared(epoch=epoch, number=7)
    assert asked == ["slow"]


async def test_hello_comes_before_the_heavy_start(stage: Stage) -> None:
    gate = threading.Event()

    def build(settings: WorkerSettings, gang_dir: Path, report: ReportLoading, memory: RankVault | None) -> Engine:
        report("weights", 0.5)
        assert gate.wait(DEADLINE_S)
        return HashChainEngine(settings)

    stage.start(build=build)
    await stage.welcome()
    loading = await stage.expect("supervisor", lifecycle.Loading)
    assert (loading.phase, loading.fraction) == ("weights", 0.5)
    gate.set()
    await stage.expect("supervisor", lifecycle.Ready)


async def test_stop_does_not_wait_for_the_start(stage: Stage) -> None:
    gate = threading.Event()

    def build(settings: WorkerSettings, gang_dir: Path, report: ReportLoading, memory: RankVault | None) -> Engine:
        gate.wait()
        return HashChainEngine(settings)

    stage.start(build=build)
    await stage.welcome()
    assert await stage.stop() == 0
    gate.set()


async def test_failed_start_is_a_fault(stage: Stage) -> None:
    def build(settings: WorkerSettings, gang_dir: Path, report: ReportLoading, memory: RankVault | None) -> Engine:
        raise OSError("model.safetensors: no such file")

    stage.start(build=build)
    await stage.welcome()
    fault = await stage.expect("supervisor", lifecycle.Fault)
    assert "no such file" in fault.reason
    assert await stage.status() == 1


async def test_refused_plan_is_answered_and_the_gang_goes_on(stage: Stage) -> None:
    plans = await stage.begin()
    s = plans.add([1, 2, 3])
    good = plans.write_plan([Row(s, 3)])
    bad = Plan(
        epoch=1,
        step=plans.step,
        n_steps=1,
        new=[],
        new_tokens=int32s(),
        page_slots=int32s(),
        page_indices=int32s(),
        page_ids=int32s(),
        row_slots=int32s([s.slot]),
        row_starts=int32s([50]),
        row_counts=int32s([1]),
        row_samples=int32s([1]),
    )
    plans.step += 1
    with capture_logs() as log:
        for plan in (good, bad, plans.write_plan([Row(s)])):
            stage.tell(plan)
        failure = await stage.expect("scheduler", StepFailed)
    assert failure.step == bad.step
    assert failure.suspects.tolist() == [s.slot]
    (line,) = [line for line in log if line["event"] == "plan refused"]
    assert (line["step"], line["slots"], line["requests"]) == (bad.step, [s.slot], [f"request of slot {s.slot}"])
    await stage.expect("scheduler", Idle)
    stage.tell(Reset(epoch=2))
    assert (await stage.expect("scheduler", Capacity)).epoch == 2
    results = [message for message in stage.heard["scheduler"] if isinstance(message, Result)]
    assert [result.step for result in results] == [good.step], "the plan after the refused one is not computed"


async def test_plans_of_another_epoch_are_dropped(stage: Stage) -> None:
    stage.start()
    await stage.ready()
    plans = writer()
    s = plans.add([1, 2, 3])
    old = plans.write_plan([Row(s, 3)])
    stage.tell(Reset(epoch=2))
    stage.tell(old)
    fresh = SmallScheduler(HashChainEngine(SETTINGS), epoch=2)
    stage.tell(fresh.write_plan([Row(fresh.add([9], GREEDY))]))
    result = await stage.expect("scheduler", Result)
    assert result.epoch == 2
    assert result.ids.tolist() == hash_chain_tokens([9], 1, 0, 32_768)


async def test_a_lost_plan_is_a_fault(stage: Stage) -> None:
    plans = await stage.begin()
    s = plans.add([1, 2, 3])
    stage.tell(plans.write_plan([Row(s, 3)]))
    plans.write_plan([Row(s)])
    stage.tell(plans.write_plan([Row(s)]))
    fault = await stage.expect("supervisor", lifecycle.Fault)
    assert "expected 1, got 2" in fault.reason
    assert await stage.status() == 1


async def test_device_error_is_a_fault_with_the_step(stage: Stage) -> None:
    class Breaking(HashChainEngine):
        def collect(self, launched: Any) -> Iterator[Result]:
            raise RuntimeError("device lost")

    plans = await stage.begin(build=lambda settings, *_: Breaking(settings))
    stage.tell(plans.write_plan([Row(plans.add([1]))]))
    fault = await stage.expect("supervisor", lifecycle.Fault)
    assert fault.doing == "step 0 of epoch 1"
    assert "device lost" in fault.reason
    assert await stage.status() == 1


async def test_a_step_in_work_does_not_stop_the_beats(stage: Stage) -> None:
    gate = threading.Event()
    plans = await stage.begin(build=held_by(gate))
    stage.tell(plans.write_plan([Row(plans.add([1]))]))
    beat = await stage.expect("supervisor", lifecycle.Progress)
    while beat.busy_s < 0.05:
        beat = await stage.expect("supervisor", lifecycle.Progress)
    assert beat.steps == 0
    gate.set()
    await stage.expect("scheduler", Result)


async def test_a_pipelined_engine_keeps_the_order(stage: Stage) -> None:
    plans = await stage.begin(msgspec.structs.replace(SETTINGS, hash_chain_step_s=0.002))
    s = plans.add([4])
    for _ in range(20):
        stage.tell(plans.write_plan([Row(s)]))
    results = [await stage.expect("scheduler", Result) for _ in range(20)]
    assert [int(r.ids[0]) for r in results] == hash_chain_tokens([4], 20, 0, 32_768)
    stage.tell(Reset(epoch=2))
    assert (await stage.expect("scheduler", Capacity)).epoch == 2
    assert await stage.stop() == 0


async def test_a_reset_may_come_before_its_sender_is_announced(stage: Stage) -> None:
    stage.start()
    await stage.welcome(with_scheduler=False)
    await stage.expect("supervisor", lifecycle.Ready)
    stage.tell(Reset(epoch=1))
    plans = writer()
    stage.tell(plans.write_plan([Row(plans.add([4]))]))
    beat = await stage.expect("supervisor", lifecycle.Progress)
    while beat.steps == 0:
        beat = await stage.expect("supervisor", lifecycle.Progress)
    assert stage.heard["scheduler"] == []
    peer = lifecycle.Peer(name="scheduler/0", incarnation=3, endpoint=stage.scheduler.endpoint)
    stage.supervisor.send("worker/0.0", lifecycle.PeerUp(peer=peer))
    await stage.expect("scheduler", Capacity)
    await stage.expect("scheduler", Result)


async def test_a_new_scheduler_never_hears_the_old_ones_results(stage: Stage) -> None:
    gate = threading.Event()
    plans = await stage.begin(build=held_by(gate))
    s = plans.add([4])
    for _ in range(3):
        stage.tell(plans.write_plan([Row(s)]))
    beat = await stage.expect("supervisor", lifecycle.Progress)
    while beat.busy_s == 0:
        beat = await stage.expect("supervisor", lifecycle.Progress)
    successor = stage.make.mailbox("scheduler/0", 4, stage.make.endpoint(stage.run_dir, "successor"))
    stage.supervisor.send("worker/0.0", lifecycle.PeerDown(name="scheduler/0", incarnation=3))
    peer = lifecycle.Peer(name="scheduler/0", incarnation=4, endpoint=successor.endpoint)
    stage.supervisor.send("worker/0.0", lifecycle.PeerUp(peer=peer))
    successor.connect("worker/0.0", 7, stage.endpoint("worker"))
    successor.send("worker/0.0", Reset(epoch=1))  # the same number: epochs are counted anew in each life of a scheduler
    fresh = writer()
    successor.send("worker/0.0", fresh.write_plan([Row(fresh.add([9]))]))
    heard: list[Message] = []
    gate.set()
    async with asyncio.timeout(DEADLINE_S):
        while len(heard) < 2:
            messages = [delivery.message for delivery in await successor.wait_mail()]
            heard += [message for message in messages if not isinstance(message, Idle)]  # they come by the clock
    assert [type(message) for message in heard] == [Capacity, Result]
    assert isinstance(heard[1], Result)
    assert heard[1].ids.tolist() == hash_chain_tokens([9], 1, 0, 32_768)
    await successor.close()
