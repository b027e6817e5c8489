"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer. It has no sockets and no threads.

Each callback belongs to a simulated process, which is the value of PROCESS in its context. Callbacks of a dead process are
dropped, so a kill ends a process between two callbacks and runs none of its `finally` blocks. Callbacks of a paused process
wait until it continues.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar
from enum import Enum
from typing import Any

PROCESS: ContextVar[SimulatedLife | None] = ContextVar("PROCESS", default=None)
_EXECUTOR_S = 0.001  # virtual time that work in a thread takes


class Deadlock(Exception):
    """Nothing is ready and no timer is set: the simulation would wait for ever."""


class LifeState(Enum):
    """What a simulated process does."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class SimulatedLife:
    """One life of a simulated process: its state, and the callbacks that wait while it is paused.

    `n_callbacks` counts the callbacks that have run. `dies_at`: it is killed before that callback, by `on_own_death`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = LifeState.RUNNING
        self.held: list[asyncio.Handle] = []
        self.n_callbacks = 0
        self.dies_at = -1
        self.on_own_death: Callable[[], None] = lambda: None

    def may_run(self, handle: asyncio.Handle) -> bool:
        """Whether this callback runs now. While the process is paused, the callback is kept for later."""
        self.n_callbacks += 1
        if self.n_callbacks == self.dies_at and self.state is LifeState.RUNNING:
            self.on_own_death()
        if self.state is LifeState.PAUSED:
            self.held.append(handle)
        return self.state is LifeState.RUNNING


class _Handle(asyncio.Handle):
    def _run(self) -> None:
        life = self._context.get(PROCESS)  # type: ignore[attr-defined]
        if life is None or life.may_run(self):
            super()._run()  # type: ignore[misc]


class _TimerHandle(asyncio.TimerHandle):
    def _run(self) -> None:
        life = self._context.get(PROCESS)  # type: ignore[attr-defined]
        if life is None or life.may_run(self):
            super()._run()  # type: ignore[misc]


class _Clock:
    """Takes the place of a selector: waiting moves the time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def select(self, timeout_s: float | None) -> list[Any]:
        if timeout_s is None:
            raise Deadlock("nothing is ready and no timer is set")
        self.now_s += timeout_s
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """See the file's header."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Clock()
        self._clock_resolution = 1e-9
        self.tasks: list[asyncio.Task[Any]] = []  # kept, so that a dead process's tasks are not finalised
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda loop, context: self.errors.append(context))
        self.errors: list[dict[str, Any]] = []

    def time(self) -> float:
        return self._selector.now_s

    def resume(self, life: SimulatedLife) -> None:
        """Let a paused process run: first what it missed, in order."""
        life.state = LifeState.RUNNING
        held, life.held = life.held, []
        self._ready.extend(held)  # type: ignore[attr-defined]

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Call the function on the loop, a little later, as if a thread had done it."""
        future = self.create_future()

        def call() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(_EXECUTOR_S, call)
        return future

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        """Signals do not reach a simulation."""

    def remove_signal_handler(self, sig: int) -> bool:
        return True

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        self.tasks.append(task)
        return task

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
