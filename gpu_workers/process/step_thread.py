"""The thread that owns an engine: takes orders strictly in order, keeps the device busy, hands results to the event loop.

    event loop                      step thread                        collector (only when max_in_flight > 1)
    ----------                      -----------                        ----------
    start()               ----->    build the engine
    submit(Reset | Plan)  ----->    reset | launch           ----->    collect
    StepEvents            <-----    loaded, faults           <-----    results, refusals, in the order of the plans

A second thread waits for the device, so that a plan that comes meanwhile is launched at once. An engine that works inside
`launch` (a CPU) needs no second thread. Threads are daemons: a kernel that never returns must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

from gpu_workers.engine import Engine, PlanRefused, ReportLoading
from messages.steps import EngineCapacity, Plan, Reset, Result, StepFailed


class StepEvents(Protocol):
    """What the event loop is told. All of these are called on the loop."""

    def on_loading(self, phase: str, fraction: float) -> None:
        """The engine's start has come this far."""
        ...

    def on_loaded(self, capacity: EngineCapacity) -> None:
        """The engine can run plans."""
        ...

    def on_reset(self, life: int) -> None:
        """Slots and pages are forgotten."""
        ...

    def on_result(self, life: int, result: Result) -> None:
        """A step is done."""
        ...

    def on_refused(self, life: int, failure: StepFailed) -> None:
        """A plan was refused; nothing of it has been done."""
        ...

    def on_fault(self, doing: str, error: BaseException) -> None:
        """The engine cannot be used any more; this is the last event."""
        ...


class PlansLost(Exception):
    """The plans' numbers have a gap: differences are missing, and nothing computed from now on could be trusted."""


class StepThread:
    """Orders in from the loop, events out to the loop.

    `build` runs on the step thread; it may import and load for minutes. `may_run(life, plan)` is asked, also there, before
    a plan is launched, and may wait; a plan that may not run is passed over without a word. A life is the time from one
    Reset to the next, numbered by the caller.
    """

    def __init__(
        self,
        build: Callable[[ReportLoading], Engine],
        events: StepEvents,
        may_run: Callable[[int, Plan], bool] = lambda life, plan: True,
    ) -> None:
        self._build, self._events, self._may_run = build, events, may_run
        self._loop = asyncio.get_running_loop()
        self._orders: SimpleQueue[tuple[int, Reset | Plan] | None] = SimpleQueue()
        self._launched: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()
        self._doing = "load"
        self._next_step: int | None = None
        self._n_begun = self._n_ended = 0  # plans
        self._since_s = 0.0  # when the present step began, while n_begun > n_ended
        self.steps = 0
        self._thread = threading.Thread(target=self._run, name="step", daemon=True)

    def start(self) -> None:
        """Begin to build the engine."""
        self._thread.start()

    def submit(self, life: int, order: Reset | Plan) -> None:
        """Queue an order. The sender bounds how many plans are on the way."""
        self._orders.put((life, order))

    def stop(self, timeout_s: float) -> bool:
        """Ask for the end and wait a little; False when a step or a load is still running."""
        self._orders.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def busy_s(self) -> float:
        """For how long the present step has been running; 0 when idle."""
        return time.monotonic() - self._since_s if self._n_begun > self._n_ended else 0.0

    def _tell(self, event: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process ends, and nobody is left to be told
            self._loop.call_soon_threadsafe(event, *arguments)

    def _report_loading(self, phase: str, fraction: float) -> None:
        self._doing = f"load ({phase})" if fraction < 1.0 else "load"
        self._tell(self._events.on_loading, phase, fraction)

    def _fault(self, error: BaseException) -> None:
        self._tell(self._events.on_fault, self._doing, error)

    def _run(self) -> None:
        try:
            engine = self._build(self._report_loading)
            self._tell(self._events.on_loaded, engine.capacity())
            if engine.max_in_flight > 1:
                self._run_pipelined(engine)
            else:
                while (item := self._orders.get()) is not None:
                    self._obey(engine, *item, lambda life, launched: self._finish(engine, life, launched))
            engine.close()
        except Exception as error:  # whatever it was, the device's state is unknown now
            self._fault(error)

    def _run_pipelined(self, engine: Engine) -> None:
        free = threading.Semaphore(engine.max_in_flight)
        collector = threading.Thread(target=self._collect, args=(engine, free), name="collect", daemon=True)
        collector.start()
        while (item := self._orders.get()) is not None:
            if isinstance(item[1], Reset):
                for _ in range(engine.max_in_flight):  # nothing may be in flight while the slots are wiped
                    free.acquire()
                free.release(engine.max_in_flight)
            else:
                free.acquire()
            self._obey(engine, *item, lambda life, launched: self._launched.put((life, launched)))
        self._launched.put(None)
        collector.join()

    def _collect(self, engine: Engine, free: threading.Semaphore) -> None:
        try:
            while (item := self._launched.get()) is not None:
                self._finish(engine, *item)
                free.release()
        except Exception as error:
            self._fault(error)

    def _obey(self, engine: Engine, life: int, order: Reset | Plan, hand_over: Callable[[int, Any], None]) -> None:
        if isinstance(order, Reset):
            self._doing = f"reset to epoch {order.epoch}"
            engine.reset(order.epoch)
            self._next_step = None
            self._tell(self._events.on_reset, life)
            return
        self._doing = f"step {order.step} of epoch {order.epoch}"
        if self._n_begun == self._n_ended:
            self._since_s = time.monotonic()
        self._n_begun += 1
        hand_over(life, self._launch(engine, life, order))

    def _launch(self, engine: Engine, life: int, plan: Plan) -> Any:
        """What the engine launched, a StepFailed, or None for a plan that is passed over.

        Raises: PlansLost.
        """
        if not self._may_run(life, plan):
            return None
        if self._next_step is not None and plan.step > self._next_step:
            raise PlansLost(f"step: expected {self._next_step}, got {plan.step}")
        if self._next_step is not None and plan.step < self._next_step:
            return _failed(plan, PlanRefused(f"step: expected {self._next_step}, got {plan.step}"))
        self._next_step = plan.step + plan.n_steps
        try:
            return engine.launch(plan)
        except PlanRefused as refusal:
            return _failed(plan, refusal)

    def _finish(self, engine: Engine, life: int, launched: Any) -> None:
        if isinstance(launched, StepFailed):
            self._tell(self._events.on_refused, life, launched)
        elif launched is not None:
            for result in engine.collect(launched):
                self.steps += 1
                self._since_s = time.monotonic()
                self._tell(self._events.on_result, life, result)
        self._since_s = time.monotonic()
        self._n_ended += 1


def _failed(plan: Plan, refusal: PlanRefused) -> StepFailed:
    return StepFailed(epoch=plan.epoch, step=plan.step, reason=str(refusal), suspects=refusal.suspects)
