"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer. It has no threads.

Unix sockets are real: what is written to one can be read from the other end at once, so they need no time and no other process.

Each callback belongs to a simulated process, which is the value of PROCESS in its context. Callbacks of a dead process are
dropped, so a kill ends a process between two callbacks and runs none of its `finally` blocks. Callbacks of a paused process
wait until it continues.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from enum import Enum
from typing import Any

from messages.ids import role_of

PROCESS: ContextVar[SimulatedLife | None] = ContextVar("PROCESS", default=None)
_MOST_ERRORS = 100
_EXECUTOR_S = 0.001  # virtual time that work in a thread takes
_RESOLUTION_S = 1e-9
_LONGEST_JUMP_S = 24 * 3600.0
_MANY_TIMERS = 100


class Deadlock(Exception):
    """Nothing is ready and no timer is set: the simulation would wait for ever."""


class Died(BaseException):
    """Leaves a callback in which its process has died. Nobody handles it."""


class LifeState(Enum):
    """What a simulated process does."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(frozen=True)
class Later:
    """What work in a thread may return: the value comes after so many seconds; infinity: never."""

    after_s: float
    value: Any


class SimulatedLife:
    """One life of a simulated process: its state, and the callbacks that wait while it is paused.

    `n_callbacks` counts the callbacks that have run. `dies_at`: it is killed before that callback, by `on_own_death`.
    """

    def __init__(self, name: str, pid: int = 0) -> None:
        self.name, self.role, self.pid = name, role_of(name), pid
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


class _Due(float):
    """When a timer is due. Timers are compared often, and a float is compared without a call of Python."""

    __slots__ = ("timer",)
    timer: asyncio.TimerHandle


class _Selector(selectors.EpollSelector):
    """Finds descriptors that are ready in the order of their registration."""

    def __init__(self) -> None:
        super().__init__()
        self._n_registered = 0
        self._number_by_fd: dict[int, int] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._n_registered += 1
        self._number_by_fd[key.fd] = self._n_registered
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The descriptors that are ready now; it never waits."""
        if not self._selector.poll(0, 1):  # type: ignore[attr-defined]  # as most often: the rest costs several times as much
            return []
        ready = [one for one in super().select(0) if not _is_paused(one[0])]
        return sorted(ready, key=lambda one: self._number_by_fd[one[0].fd])


def _is_paused(key: selectors.SelectorKey) -> bool:
    life = life_of_key(key)
    return life is not None and life.state is LifeState.PAUSED


def life_of_key(key: selectors.SelectorKey) -> SimulatedLife | None:
    """The process that watches a descriptor."""
    handle = next(one for one in key.data if one is not None)
    return handle._context.get(PROCESS)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop of a whole simulation; `time` gives virtual seconds."""

    def __init__(self) -> None:
        self.selector = _Selector()
        super().__init__(self.selector)
        self.now_s = 1000.0
        self._timers: list[_Due] = []  # a heap
        self._n_cancelled = 0  # timers in it that were cancelled
        self.tasks: list[asyncio.Task[Any]] = []  # kept, so that a dead process's tasks are not finalised
        self.set_task_factory(self._make_task)
        self.errors: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        """As in asyncio, but for time, which jumps, and for processes that are dead or paused."""
        ready = self._ready  # type: ignore[attr-defined]
        self._drop_cancelled()
        events = self.selector.select()
        self._process_events(events)  # type: ignore[attr-defined]
        if not (events or ready or self._stopping):  # type: ignore[attr-defined]
            if not self._timers:
                raise Deadlock("nothing is ready and no timer is set")
            self.now_s += min(max(0, self._timers[0] - self.now_s), _LONGEST_JUMP_S)
        end_s = self.now_s + _RESOLUTION_S
        while self._timers and self._timers[0] < end_s:
            ready.append(self._take_timer())
        for _ in range(len(ready)):
            self._call(ready.popleft())

    def _call(self, handle: asyncio.Handle) -> None:
        """Run a callback if its process may run."""
        if not handle._cancelled:  # type: ignore[attr-defined]
            life = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if life is None or life.may_run(handle):
                handle._run()  # type: ignore[attr-defined]

    def _take_timer(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._timers).timer
        timer._scheduled = False  # type: ignore[attr-defined]
        return timer

    def _drop_cancelled(self) -> None:
        """Timers that were cancelled, once they are the next ones or most of all."""
        timers = self._timers
        if len(timers) > _MANY_TIMERS and self._n_cancelled > len(timers) / 2:
            for due in timers:
                due.timer._scheduled = not due.timer.cancelled()  # type: ignore[attr-defined]
            self._timers = [due for due in timers if not due.timer.cancelled()]
            heapq.heapify(self._timers)
            self._n_cancelled = 0
        while self._timers and self._timers[0].timer._cancelled:  # type: ignore[attr-defined]
            self._n_cancelled -= 1
            self._take_timer()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._n_cancelled += handle._scheduled  # type: ignore[attr-defined]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an exception that nobody has handled, unless it comes from the remains of a dead process."""
        life = PROCESS.get()
        if not isinstance(context.get("exception"), Died) and (life is None or life.state is not LifeState.DEAD):
            self.errors.append(context)
            if len(self.errors) > _MOST_ERRORS:  # a descriptor whose callback always fails: the time stands still
                raise RuntimeError(f"{len(self.errors)} exceptions that nobody has handled") from context.get("exception")

    def set_exception_handler(self, handler: Any) -> None:
        """Exceptions are kept in `errors`."""

    def block(self, for_s: float) -> None:
        """The process that calls this waits for something that does not come: it goes on after so long."""
        life = PROCESS.get()
        if life is not None and life.state is LifeState.RUNNING:
            life.state = LifeState.PAUSED
            outside = copy_context()
            outside.run(PROCESS.set, None)
            self.call_later(for_s, self.resume, life, context=outside)

    def resume(self, life: SimulatedLife) -> None:
        """Let a paused process run: first what it missed, in order."""
        if life.state is not LifeState.PAUSED:
            return
        life.state = LifeState.RUNNING
        held, life.held = life.held, []
        self._ready.extend(held)  # type: ignore[attr-defined]

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        due = _Due(when)
        due.timer = timer
        heapq.heappush(self._timers, due)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
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
                if isinstance(result, Later):
                    if result.after_s < math.inf:
                        self.call_later(result.after_s, done, result.value)
                else:
                    done(result)

        def done(result: Any) -> None:
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

    def _add_callback(self, handle: asyncio.Handle) -> None:
        """A descriptor is ready. Its callback belongs to a process as every other one does."""
        if not handle.cancelled():
            self._ready.append(asyncio.Handle(_run_unless_cancelled, (handle,), self, handle._context))  # type: ignore[attr-defined]

    def serve(self, name: str) -> None:
        """Let a process answer now what waits on its sockets, because another one waits for the answer and does nothing else.

        `name`: the beginning of its name.
        """
        for key, _ in self.selector.select():
            reader, life = key.data[0], life_of_key(key)
            if reader is not None and life is not None and life.name.startswith(name) and life.state is LifeState.RUNNING:
                self._call(asyncio.Handle(_run_unless_cancelled, (reader,), self, reader._context))

    def _check_closed(self) -> None:
        """The remains of processes that were killed may still use a loop that is closed; nothing of it runs."""

    def _write_to_self(self) -> None:
        pass


def _run_unless_cancelled(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._callback(*handle._args)  # type: ignore[attr-defined]
