"""The urgent step of an engine that runs it beside others: a thread of its own waits for its end.

Its plan is launched by the step thread, in the order of the commands, however many others are in flight. Plans that are
launched later run after it, and their results are reported after its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic

from gpu_workers.engine import Engine, Launched
from gpu_workers.process.gang_agreement import EpochId
from gpu_workers.process.step_events import StepEvents
from messages.caches.moves import Moves
from messages.steps import Plan, Reset, StepFailed

Report = Callable[..., None]  # as `StepThread._report`


class BesideSteps(Generic[Launched]):
    """At most one urgent step at a time. report: calls an event on the event loop. on_error: is called with any error of the
    engine, on the thread that waits."""

    def __init__(self, events: StepEvents, report: Report, on_error: Callable[[BaseException], None]) -> None:
        self._events, self._report, self._on_error = events, report, on_error
        self._launched: SimpleQueue[tuple[EpochId, Launched | StepFailed | None] | None] = SimpleQueue()
        self._has_ended = threading.Condition()
        self._plan: Plan | None = None  # in flight
        self._since_s = 0.0  # when it began
        self.n_done = 0  # plans
        self.steps = 0  # steps that have ended
        self._thread: threading.Thread | None = None

    def start(self, engine: Engine[Launched]) -> None:
        """Start the thread. Not called for an engine that runs nothing beside others."""
        self._thread = threading.Thread(target=self._run, args=(engine,), name="beside", daemon=True)
        self._thread.start()

    def takes(self, command: Reset | Plan | Moves) -> bool:
        """True for an urgent plan, once the thread has been started."""
        return isinstance(command, Plan) and command.is_urgent and self._thread is not None

    def begin(self, plan: Plan) -> None:
        """An urgent plan is about to be launched. Waits for the one before it."""
        self.wait()
        with self._has_ended:
            self._plan, self._since_s = plan, time.monotonic()

    def put(self, epoch: EpochId, launched: Launched | StepFailed | None) -> None:
        """It was launched, refused or skipped."""
        self._launched.put((epoch, launched))

    def wait(self, before: int | None = None) -> None:
        """Wait until no urgent step is in flight; `before`: none with a smaller number."""
        with self._has_ended:
            self._has_ended.wait_for(lambda: self._plan is None or (before is not None and self._plan.step > before))

    def close(self) -> None:
        """End the thread, after the step in flight."""
        if self._thread is not None:
            self._launched.put(None)
            self._thread.join()

    def busy_s(self) -> float:
        """How long the urgent step has been running; 0 while there is none."""
        return time.monotonic() - self._since_s if self._plan is not None else 0.0

    def expected_s(self) -> float:
        """How long the urgent step is expected to take; 0 while there is none, or if that is not known."""
        plan = self._plan
        return plan.expected_s if plan is not None else 0.0

    def _run(self, engine: Engine[Launched]) -> None:
        try:
            while (item := self._launched.get()) is not None:
                self._finish(engine, *item)
                with self._has_ended:
                    self._plan = None
                    self.n_done += 1
                    self._has_ended.notify_all()
        except Exception as error:
            self._on_error(error)

    def _finish(self, engine: Engine[Launched], epoch: EpochId, launched: Launched | StepFailed | None) -> None:
        if isinstance(launched, StepFailed):
            self._report(self._events.on_refused, epoch, launched)
        elif launched is not None:
            for result in engine.collect(launched):
                self.steps += 1
                self._report(self._events.on_result, epoch, result)
