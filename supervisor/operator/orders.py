"""Orders to the whole tree, from operators, signals or a spent budget: drain, stop, force. One order at a time gets stronger.

    order                    given by
    -----------------------  ---------------------------------------------------------------------
    DRAIN                    `supervisor drain`: every process stays, nothing new is taken
    DRAIN_AND_STOP           SIGTERM, SIGHUP, Ctrl-C, `supervisor stop`
    STOP                     the end of a drain, a start that failed, a spent budget, nothing to finish yet
    STOP, everybody killed   Ctrl-C again

`supervisor/policy/states.py` says which order may follow which.

The exit status says how it went: see `__main__.py`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from messages.ids import role_of
from messages.lifecycle import ChildState
from supervisor.children.child_record import ChildRecord
from supervisor.children.nursery import Nursery
from supervisor.operator import shutdown
from supervisor.operator.display import Display
from supervisor.operator.notify import notify
from supervisor.policy.draining import DrainEnd, DrainWatch
from supervisor.policy.states import TreeOrder, next_order

EXIT_STOPPED = 0
EXIT_FORCED = 5
EXIT_REQUESTS_LEFT = 7
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Orders:
    """What the tree has been told to do, and the tasks that carry it out.

    `on_stopping` is called once, before the first child is asked to leave: from then on deaths are wanted.
    """

    def __init__(self, nursery: Nursery, display: Display, drain_s: float, on_stopping: Callable[[], None]) -> None:
        self.present = TreeOrder.NONE
        self.ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.has_served = False
        self._nursery, self._display, self._drain_s = nursery, display, drain_s
        self._watch: DrainWatch | None = None  # of the newest drain
        self._failure = EXIT_STOPPED  # why the tree gives up, when it does
        self._is_forced = False
        self.last_words = ""  # when the end is not as ordered: why, for the operator's commands
        self._on_stopping = on_stopping
        self._tasks: set[asyncio.Task[object]] = set()
        self._log = structlog.get_logger()

    @property
    def is_stopping(self) -> bool:
        """Are deaths wanted?"""
        return self.present is TreeOrder.STOP

    @property
    def is_ending(self) -> bool:
        """Has somebody ordered the end?"""
        return self.present in (TreeOrder.DRAIN_AND_STOP, TreeOrder.STOP)

    @property
    def is_drained(self) -> bool:
        """Has a drain been ordered, and has no gateway anything left to finish now?"""
        states = [record.state for record in shutdown.gateways(self._nursery)]
        return self.present is TreeOrder.DRAIN and all(state is ChildState.DRAINED for state in states)

    def stop(self, drain_s: float | None = None) -> None:
        """Drain at most so long (None: as configured), then stop in order."""
        if self.is_ending:
            return
        notify("STOPPING=1")
        drain_s = self._drain_s if drain_s is None else drain_s
        if self.has_served:
            self._enter(TreeOrder.DRAIN_AND_STOP)
        self.run_task(self._stop(drain_s))

    def give_up(self, exit_status: int, reason: str) -> None:
        """Stop in order without a drain, and end one that is under way: who would finish the requests is beyond repair."""
        if self.is_stopping:
            return
        self._failure, self.last_words = exit_status, f"the server gave up: {reason}"
        if self._watch is not None:
            self._watch.cut()
            self._nursery.note_change()
        if not self.is_ending:
            notify("STOPPING=1")
            self.run_task(self._stop(0.0))

    def drain(self, deadline_s: float, then_stop: bool) -> None:
        """Refuse new requests; keep everybody running afterwards, or stop."""
        if then_stop:
            self.stop(deadline_s)
        elif self.present is TreeOrder.NONE:
            self._enter(TreeOrder.DRAIN)
            self.run_task(self._drain(deadline_s))

    def force(self) -> None:
        """Kill everybody now. The end is a forced one from here on, whoever sees the last death first."""
        self._is_forced = True
        self.last_words = "the server was forced to end: everybody was killed"
        self._begin_stopping()
        self.run_task(self._force())

    def note_ready(self, record: ChildRecord) -> None:
        """A gateway that came back while the tree drains must not take new requests either; it goes on with its journal."""
        if self._watch is not None and not self.is_stopping and role_of(record.name) == "gateway":
            shutdown.ask_to_drain(self._nursery, record, self._watch.left_s(time.monotonic()))

    def run_task(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a task of the supervisor; its failure ends the supervisor, as a bug must."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def open(self) -> None:
        """From now on signals are answered, and what fails in a callback of the loop ends the supervisor too."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        loop.set_exception_handler(self._on_bug)

    def close(self) -> None:
        """Cancel what still runs."""
        loop = asyncio.get_running_loop()
        for task in self._tasks:
            task.cancel()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        loop.set_exception_handler(None)

    def _on_signal(self, number: signal.Signals) -> None:
        self._log.info("signal", signal=signal.Signals(number).name)
        if number == signal.SIGINT and self.is_ending:
            self._display.say("forced: killing everybody")
            self.force()
            return
        if number == signal.SIGINT:
            self._display.say("stopping when the requests in progress have finished; Ctrl-C once more kills")
        self.stop()

    async def _drain(self, deadline_s: float) -> DrainEnd:
        watch = self._watch = DrainWatch(deadline_s, time.monotonic())
        end = await shutdown.drain(self._nursery, watch)
        left = 0 if end is DrainEnd.DRAINED else shutdown.requests_left(self._nursery)
        say = self._log.info if end is DrainEnd.DRAINED else self._log.warning
        say("drain", end=end.value, deadline_s=deadline_s, requests_left=left)
        return end

    async def _stop(self, drain_s: float) -> None:
        exit_status = EXIT_STOPPED
        if self.present is TreeOrder.DRAIN_AND_STOP and await self._drain(drain_s) is DrainEnd.LATE:
            exit_status = EXIT_REQUESTS_LEFT
            self.last_words = left_text(shutdown.requests_left(self._nursery), drain_s)
            self._display.say(self.last_words)
        if self.is_stopping:
            return
        self._begin_stopping()
        is_clean = await shutdown.stop_in_order(self._nursery)
        if self._is_forced:
            return
        if not is_clean:
            exit_status, self.last_words = EXIT_FORCED, "some process could not be proven dead; the log names it"
        else:
            exit_status = self._failure or exit_status
        self._end(exit_status)

    async def _force(self) -> None:
        await shutdown.force(self._nursery)
        self._end(EXIT_FORCED)

    def _enter(self, order: TreeOrder) -> None:
        self.present = next_order(self.present, order)

    def _begin_stopping(self) -> None:
        if not self.is_stopping:
            self._enter(TreeOrder.STOP)
            self._on_stopping()

    def _end(self, exit_status: int) -> None:
        if not self.ending.done():
            self._log.info("stopped", exit_status=exit_status)
            self.ending.set_result(exit_status)

    def _task_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _on_bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        if isinstance(error := context.get("exception"), Exception):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.ending.done():
            self.ending.set_exception(error)


def left_text(n_requests: int, drain_s: float) -> str:
    """What a person reads when a drain was not finished."""
    left = "1 answer is unfinished" if n_requests == 1 else f"{n_requests} answers are unfinished"
    left = left if n_requests else "no gateway said in time that all is finished"
    return f"the server ends after {drain_s:g} s of draining: {left}; the next start goes on with what its journals hold"
