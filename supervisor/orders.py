"""Orders to the whole tree, from operators, signals or a spent budget: drain, stop, force. One order at a time gets stronger.

order      "" -> draining -> drained          `supervisor drain`: everybody stays, nothing new is taken
           "" -> draining -> stopping         SIGTERM, SIGHUP, Ctrl-C, `supervisor stop`
           "" -> stopping                     a start that failed, a spent budget, or nothing to finish yet
           any -> stopping, all killed        Ctrl-C again
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from messages.ids import role_of
from supervisor import shutdown
from supervisor.child_record import ChildRecord
from supervisor.display import Display
from supervisor.notify import notify
from supervisor.nursery import Nursery

EXIT_STOPPED = 0
EXIT_FORCED = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Orders:
    """What the tree has been told to do, and the tasks that carry it out.

    `on_stopping` is called once, before the first child is asked to leave: from then on deaths are wanted.
    """

    def __init__(self, nursery: Nursery, display: Display, drain_s: float, on_stopping: Callable[[], None]) -> None:
        self.present = ""
        self.ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.has_served = False
        self._nursery, self._display, self._drain_s = nursery, display, drain_s
        self._on_stopping = on_stopping
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    @property
    def is_stopping(self) -> bool:
        """Are deaths wanted?"""
        return self.present == "stopping"

    @property
    def is_ending(self) -> bool:
        """Has somebody ordered the end?"""
        return self.present in ("draining to stop", "stopping")

    def stop(self, drain_s: float | None = None, exit_status: int = EXIT_STOPPED) -> None:
        """Drain at most so long (None: as configured), then stop in order."""
        if self.is_ending:
            return
        notify("STOPPING=1")
        drain_s = self._drain_s if drain_s is None else drain_s
        if self.has_served and drain_s > 0:
            self.present = "draining to stop"
        self.run_task(self._stop(drain_s, exit_status))

    def drain(self, deadline_s: float, then_stop: bool) -> None:
        """Refuse new requests; keep everybody running afterwards, or stop."""
        if then_stop:
            self.stop(deadline_s)
        elif self.present == "":
            self.present = "draining"
            self.run_task(self._drain(deadline_s))

    def force(self) -> None:
        """Kill everybody now."""
        self._begin_stopping()
        self.run_task(self._force())

    def note_ready(self, record: ChildRecord) -> None:
        """A gateway that came back while the tree drains must not take new requests either."""
        if self.present and not self.is_stopping and role_of(record.name) == "gateway":
            shutdown.ask_to_drain(self._nursery, record, self._drain_s)

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of the supervisor; its failure ends the supervisor, as a bug must."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def open_signals(self) -> None:
        """Answer signals from now on."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    def close(self) -> None:
        """Cancel what still runs."""
        for task in self._tasks:
            task.cancel()
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        self._log.info("signal", signal=signal.Signals(number).name)
        if number == signal.SIGINT and self.is_ending:
            self._display.say("forced: killing everybody")
            self.force()
            return
        if number == signal.SIGINT:
            self._display.say("stopping when the requests in progress have finished; Ctrl-C once more kills")
        self.stop()

    async def _drain(self, deadline_s: float) -> None:
        is_done = await shutdown.drain(self._nursery, deadline_s)
        self._log.info("drained" if is_done else "drain deadline passed", deadline_s=deadline_s)
        if self.present == "draining":
            self.present = "drained"

    async def _stop(self, drain_s: float, exit_status: int) -> None:
        if self.present == "draining to stop":
            await self._drain(drain_s)
        if self.is_stopping:
            return
        self._begin_stopping()
        is_clean = await shutdown.stop_in_order(self._nursery)
        self._log.info("stopped", exit_status=exit_status)
        self._end(exit_status if is_clean else EXIT_FORCED)

    async def _force(self) -> None:
        await shutdown.force(self._nursery)
        self._end(EXIT_FORCED)

    def _begin_stopping(self) -> None:
        if not self.is_stopping:
            self.present = "stopping"
            self._on_stopping()

    def _end(self, exit_status: int) -> None:
        if not self.ending.done():
            self.ending.set_result(exit_status)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.ending.done():
            self.ending.set_exception(error)
