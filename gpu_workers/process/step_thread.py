"""The thread that owns an engine: it takes commands in order, keeps the device busy, and hands results to the event loop.

    event loop                      step thread                        collector (only when max_in_flight > 1)
    ----------                      -----------                        ----------
    start()               ----->    build the engine
    submit(Reset | Plan)  ----->    reset | launch           ----->    collect
    submit(Moves)         ----->    move or queue pages; threads of their own wait for copies, and use the disk
    StepEvents            <-----    loaded, moved, faults    <-----    results, refusals, in the order of the plans

The collector waits for the device, so that a plan that comes meanwhile is launched at once; urgent plans have another one
(`beside_steps.py`). An engine that works inside `launch` (a CPU) needs no collector. Threads are daemons: a kernel that never
returns must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic

from msgspec.structs import replace

from gpu_workers.engine import Engine, Launched, PlanRefused, RankLost, ReportLoading
from gpu_workers.process.beside_steps import BesideSteps
from gpu_workers.process.gang_agreement import EpochId
from gpu_workers.process.page_moves import PageMover
from gpu_workers.process.rank_disk import RankDisk
from gpu_workers.process.rank_exchange import RankExchange
from gpu_workers.process.rank_moves import RankMoves
from gpu_workers.process.step_events import StepEvents
from messages.caches.moves import Moves
from messages.steps import Plan, Reset, StepFailed

_FACTOR = 20.0  # a step that takes this many times as long as expected hangs
_MOVES_END_S = 0.1  # for copies on their way when the process ends: what they have not copied is lost
_END_S = 2.0  # in which the supervisor ends a rank whose gang has lost another one
_WAIT_S = 5.0  # a plan may take so long to the other ranks; a link repeats what is lost, perhaps over a new connection


class PlansLost(Exception):
    """Plans between two received ones are missing, so the engine's tables would differ from the scheduler's."""


class StepThread(Generic[Launched]):
    """Runs the commands of one event loop on one engine.

    `build` is called on the step thread; it may import and load for minutes. `may_run(epoch, plan)` is called there before
    a plan is launched, and may wait. If it returns False, the plan is skipped and nothing is reported. `before_reset(epoch,
    reset, engine)` is called there before the engine forgets its slots. `on_error()` is called on the thread that has met an
    error of the engine, before the error is reported. No step counts as hung before `least_hang_s`.
    """

    def __init__(
        self,
        build: Callable[[ReportLoading], Engine[Launched]],
        events: StepEvents,
        may_run: Callable[[EpochId, Plan], bool] = lambda epoch, plan: True,
        before_reset: Callable[[EpochId, Reset, Engine[Launched]], None] = lambda epoch, reset, engine: None,
        on_error: Callable[[], None] = lambda: None,
        least_hang_s: float = 0.5,
        disk: RankDisk | None = None,
        exchange: RankExchange | None = None,
    ) -> None:
        self._build, self._events, self._may_run, self._before_reset = build, events, may_run, before_reset
        self._on_error, self._disk, self._exchange = on_error, disk, exchange
        self._mover = PageMover(lambda doing, error: self._fault(error, doing))
        self._moves = RankMoves(self._mover, disk, exchange)
        self._loop = asyncio.get_running_loop()
        self._commands: SimpleQueue[tuple[EpochId, Reset | Plan | Moves] | None] = SimpleQueue()
        self._launched: SimpleQueue[tuple[EpochId, Launched | StepFailed | None, float] | None] = SimpleQueue()
        self._doing = "load"
        self._next_step: int | None = None
        self._has_refused = False  # a plan since the last Reset; the tables of the engine lack its differences
        self._has_skipped = False  # a plan since the last Reset; pages may lack what it would have written
        self._n_begun = self._n_ended = 0  # number of plans
        self._n_submitted = self._n_done = 0  # number of commands; those done without moves, which another thread counts
        self._n_moves = 0  # that are done
        self._plans: deque[Plan] = deque()  # begun and not ended
        self._least_hang_s = least_hang_s
        self._engine: Engine[Launched] | None = None
        self._since_s = 0.0  # when the present step began, while _n_begun > _n_ended
        self._waits = False  # the newest plan waits until it may run
        self._steps, self._ended_s = 0, 0.0  # steps that have ended, and when the last one has
        self._beside: BesideSteps[Launched] = BesideSteps(events, self._report, self._fault)
        self._thread = threading.Thread(target=self._run, name="step", daemon=True)

    def start(self) -> None:
        """Start the thread, which builds the engine."""
        self._thread.start()

    def submit(self, epoch: EpochId, command: Reset | Plan | Moves) -> None:
        """Queue a command. The scheduler bounds how many plans are in flight."""
        self._n_submitted += 1
        self._commands.put((epoch, command))

    def prepare_grammar(self, grammar: str) -> Sequence[Future[Any]]:
        """Let the engine begin to compile a grammar. Returns what must be done before a plan has it; () while there is no
        engine."""
        return self._engine.prepare_grammar(grammar) if self._engine is not None else ()

    def stop(self, timeout_s: float) -> bool:
        """End the thread after the queued commands, and wait at most timeout_s. Returns False if it is still running then."""
        self._commands.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_idle(self) -> bool:
        """True while every command is done."""
        return self._n_done + self._beside.n_done + self._n_moves == self._n_submitted and self._mover.is_idle

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self._steps + self._beside.steps

    @property
    def late_compilations(self) -> int:
        """Kernels that the engine has compiled since its warm-up; 0 while there is no engine."""
        return self._engine.late_compilations if self._engine is not None else 0

    def busy_s(self) -> float:
        """How long the present step has been running, or the urgent one if there is no other; 0 while no plan is launched."""
        if self._n_begun > self._n_ended:
            return time.monotonic() - self._since_s
        return self._beside.busy_s()

    def limit_s(self) -> float:
        """How long the present step may run before it counts as hung; 0 while no plan is launched, if that is not known, or
        while the engine compiles. Beside an urgent step it has longer; if it waits for another rank, `_WAIT_S` at least."""
        urgent_s = self._beside.expected_s()
        try:
            expected_s = self._plans[0].expected_s
        except IndexError:
            expected_s, urgent_s = urgent_s, 0.0
        if not expected_s or (self._engine is not None and self._engine.is_compiling):
            return 0.0
        is_waiting = self._waits and self._n_begun - self._n_ended == 1
        return max(_FACTOR * (expected_s + urgent_s), self._least_hang_s, _WAIT_S if is_waiting else 0.0)

    def _report(self, event: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            self._loop.call_soon_threadsafe(event, *arguments)

    def _report_loading(self, phase: str, fraction: float) -> None:
        self._doing = f"load ({phase})" if fraction < 1.0 else "load"
        self._report(self._events.on_loading, phase, fraction)

    def _fault(self, error: BaseException, doing: str = "") -> None:
        if isinstance(error, RankLost):  # no fault of this rank: its end is on its way, and what is kept is intact
            time.sleep(_END_S)
        try:
            self._on_error()
        finally:
            self._report(self._events.on_fault, doing or self._doing, error)

    def _run(self) -> None:
        try:
            engine = self._engine = self._build(self._report_loading)
            self._report(self._events.on_loaded, engine.capacity())
            if engine.max_in_flight > 1:
                self._run_pipelined(engine)
            else:
                while (item := self._commands.get()) is not None:
                    self._execute(engine, *item, lambda epoch, launched: self._finish(engine, epoch, launched))
                    engine.look_ahead()
            self._mover.close(_MOVES_END_S)
            engine.close()
            if self._disk is not None:
                self._disk.close()
        except Exception as error:  # after any error the state of the device is unknown
            self._fault(error)

    def _run_pipelined(self, engine: Engine[Launched]) -> None:
        free = threading.Semaphore(engine.max_in_flight)
        collector = threading.Thread(target=self._collect, args=(engine, free), name="collect", daemon=True)
        if engine.capacity().runs_beside:
            self._beside.start(engine)
        collector.start()
        while (item := self._commands.get()) is not None:
            if isinstance(item[1], Reset):
                for _ in range(engine.max_in_flight):  # no plan may be in flight while the slots are cleared
                    free.acquire()
                free.release(engine.max_in_flight)
                self._beside.wait()
            elif isinstance(item[1], Plan) and not self._beside.takes(item[1]):
                free.acquire()
            self._execute(engine, *item, lambda epoch, launched: self._launched.put((epoch, launched, time.monotonic())))
        self._launched.put(None)
        collector.join()
        self._beside.close()

    def _collect(self, engine: Engine[Launched], free: threading.Semaphore) -> None:
        try:
            while (item := self._launched.get()) is not None:
                self._finish(engine, *item)
                free.release()
                engine.look_ahead()
        except Exception as error:
            self._fault(error)

    def _execute(
        self,
        engine: Engine[Launched],
        epoch: EpochId,
        command: Reset | Plan | Moves,
        deliver: Callable[[EpochId, Launched | StepFailed | None], None],
    ) -> None:
        """Resets the engine, moves pages, or launches a plan and passes what was launched to `deliver`. Raises: PlansLost."""
        if isinstance(command, Moves):
            self._move(engine, epoch, command)
            return
        if isinstance(command, Reset):
            self._doing = f"reset to epoch {command.epoch}"
            self._before_reset(epoch, command, engine)
            if command.is_memory_suspect:
                for tier in (engine.host_tier, engine.exchange):
                    if tier is not None:
                        tier.clear()
            if self._disk is not None:
                self._disk.begin_epoch(command)
            engine.reset(command.epoch)
            self._next_step, self._has_refused, self._has_skipped = None, False, False
            self._report(self._events.on_reset, epoch)
            self._n_done += 1  # no plan is in flight, so the collector does not count now
            return
        self._doing = f"step {command.step} of epoch {command.epoch}"
        if self._beside.takes(command):
            self._beside.begin(command)
            self._beside.put(epoch, self._launch(engine, epoch, command))
            return
        if self._n_begun == self._n_ended:
            self._since_s = time.monotonic()
            self._plans.clear()
        self._n_begun += 1
        self._plans.append(command)
        deliver(epoch, self._launch(engine, epoch, command))

    def _move(self, engine: Engine[Launched], epoch: EpochId, moves: Moves) -> None:
        self._doing = f"moves of epoch {moves.epoch}"
        is_intact = not (self._has_refused or self._has_skipped)
        self._moves.begin(engine, moves, is_intact, lambda moved: self._report(self._events.on_moved, epoch, moved))
        self._n_moves += 1

    def _launch(self, engine: Engine[Launched], epoch: EpochId, plan: Plan) -> Launched | StepFailed | None:
        """What the engine launched; StepFailed for a plan that is refused, None for one that is skipped.

        After a refusal all plans are skipped until the next Reset: they would write to the pages that a slot had before, whose
        contents the next scheduler may adopt, or this one keep, if the refusal does not arrive. Raises: PlansLost.
        """
        self._waits = True
        may_run = self._may_run(epoch, plan)
        self._waits = False
        if self._n_begun - self._n_ended == 1 and not plan.is_urgent:
            self._since_s = time.monotonic()  # the wait says nothing about the step
        if not may_run or self._has_refused:
            self._has_skipped = True
            return None
        if self._next_step is not None and plan.step > self._next_step:
            raise PlansLost(f"step: expected {self._next_step}, got {plan.step}")
        try:
            if self._next_step is not None and plan.step < self._next_step:
                raise PlanRefused(f"step: expected {self._next_step}, got {plan.step}")
            self._next_step = plan.step + plan.n_steps
            return engine.launch(plan)
        except PlanRefused as refusal:
            self._has_refused = True
            return StepFailed(epoch=plan.epoch, step=plan.step, reason=str(refusal), suspects=refusal.suspects)

    def _finish(
        self, engine: Engine[Launched], epoch: EpochId, launched: Launched | StepFailed | None, at_s: float = math.nan
    ) -> None:
        """`at_s`: when it was launched, by the monotonic clock; NaN: it has been computed already."""
        if isinstance(launched, StepFailed):
            self._report(self._events.on_refused, epoch, launched)
        elif launched is not None:
            for result in engine.collect(launched):
                self._steps += 1
                result, at_s = replace(result, wait_s=at_s - self._ended_s), math.nan
                self._ended_s = self._since_s = time.monotonic()
                self._beside.wait(before=int(result.step))
                self._report(self._events.on_result, epoch, result)
        self._since_s = time.monotonic()
        self._plans.popleft()
        self._n_ended += 1
        self._n_done += 1
