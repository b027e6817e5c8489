"""Commands to the whole tree from operators, signals or a spent budget: drain, stop, force.

Only a stronger command replaces another; a drain alone can be taken back.

    command                  given by
    -----------------------  ---------------------------------------------------------------------
    DRAIN                    `supervisor drain`: every process stays, new requests are refused
    DRAIN_AND_STOP           SIGTERM, SIGHUP of a terminal, Ctrl-C, `supervisor stop`
    STOP                     the end of a drain, a start that failed, a spent budget, nothing to finish yet
    STOP, all killed         Ctrl-C again

`supervisor/policy/states.py` says which command may follow which.

The exit status (`ExitCode`) says how it went.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from messages.ids import role_of
from messages.lifecycle.tree import ChildState
from messages.outcomes import ExitCode
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.directories.saved_state import SavedStateFile, StandingCommand
from supervisor.operator import shutdown
from supervisor.operator.display import Display
from supervisor.operator.notify import notify
from supervisor.policy.draining import DrainEnd, DrainWatch
from supervisor.policy.states import TreeCommand, next_command

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class TreeCommands:
    """The present command to the tree, and the tasks that carry it out.

    `on_stopping` is called once, before the first child is stopped: from then on deaths are expected. `on_replacing(names)` is
    called before these children end to be replaced. `saved`: where the command is written down, so that the next supervisor
    goes on with it.
    """

    def __init__(
        self,
        children: ChildManager,
        display: Display,
        drain_s: float,
        on_stopping: Callable[[], None],
        on_replacing: Callable[[list[str]], None],
        saved: SavedStateFile,
    ) -> None:
        self.present = TreeCommand.NONE
        self.ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.has_served = False
        self.on_hangup: Callable[[], bool] = lambda: False  # reloads the configuration; False: the terminal was closed
        self._children, self._display, self._drain_s = children, display, drain_s
        self._watch: DrainWatch | None = None  # of the newest drain
        self._failure = ExitCode.DONE  # the exit status when the tree gives up
        self._is_forced = False
        self._saved, self._end_s = saved, 0.0
        self._n_interrupts, self._n_repeated = 0, saved.left.command.n_interrupts  # Ctrl-C; those that the parent repeats
        self.end_reason = ""  # why the server ended if nobody asked for it, for the operator's commands
        self._on_stopping, self._on_replacing = on_stopping, on_replacing
        self._tasks: set[asyncio.Task[object]] = set()
        self._log = structlog.get_logger()

    @property
    def is_stopping(self) -> bool:
        """True while children are being stopped, so that deaths are expected."""
        return self.present is TreeCommand.STOP

    @property
    def is_ending(self) -> bool:
        """True when somebody has asked for the end of the server."""
        return self.present in (TreeCommand.DRAIN_AND_STOP, TreeCommand.STOP)

    @property
    def is_drained(self) -> bool:
        """True when somebody has asked for a drain and no gateway has anything left to finish."""
        states = [record.state for record in shutdown.gateways(self._children)]
        return self.present is TreeCommand.DRAIN and all(state is ChildState.DRAINED for state in states)

    def resume(self) -> None:
        """Go on with the command to the last supervisor, if there was one. Call it when its children are adopted."""
        left = self._saved.left.command
        if left.command is TreeCommand.NONE:
            return
        self._failure, self.end_reason = left.exit_status, left.reason
        left_s = max(left.end_s - time.monotonic(), 0.0)
        self._log.warning(
            "a command to the previous supervisor is still carried out", command=left.command.value, left_s=round(left_s, 3)
        )
        if left.command is TreeCommand.DRAIN:
            self.drain(left_s, then_stop=False)
        elif left.command is TreeCommand.DRAIN_AND_STOP:
            self.stop(left_s)
        elif left.is_forced:
            self.force()
        else:
            self._begin_stopping()
            self.run_task(self._stop_children())

    def stop(self, drain_s: float | None = None) -> None:
        """Drain for at most `drain_s` seconds (None: as configured), then stop every child."""
        if self.is_ending:
            return
        notify("STOPPING=1")
        drain_s = self._drain_s if drain_s is None else drain_s
        if self.has_served:
            self._enter(TreeCommand.DRAIN_AND_STOP)
        self.run_task(self._stop(drain_s))

    def give_up(self, exit_status: int, reason: str) -> None:
        """Stop without a drain, or cut the present one short, because the requests cannot be finished any more."""
        if self.is_stopping:
            return
        self._failure, self.end_reason = exit_status, f"the server gave up: {reason}"
        if self._watch is not None:
            self._watch.cut()
            self._children.note_change()
        self._note()
        if not self.is_ending:
            notify("STOPPING=1")
            self.run_task(self._stop(0.0))

    def drain(self, deadline_s: float, then_stop: bool) -> None:
        """Refuse new requests and finish the others within `deadline_s`; then stop, or keep every process running."""
        if then_stop:
            self.stop(deadline_s)
        elif self.present is TreeCommand.NONE:
            self._enter(TreeCommand.DRAIN)
            self.run_task(self._drain(deadline_s))

    def serve(self) -> str:
        """Take a drain back: gateways that take no new requests are replaced by ones that do, and their requests go on. Returns
        "", or why that is not possible."""
        if self.present not in (TreeCommand.NONE, TreeCommand.DRAIN):
            return "expected a server that is drained or serves, got one that is stopping"
        closed = [record for record in shutdown.gateways(self._children) if record.state in shutdown.CLOSED_STATES]
        if self.present is TreeCommand.DRAIN:
            if names := shutdown.unwritten(closed):
                return f"expected journals that can be written, got a disk that refuses writes of {', '.join(names)}"
            if self._watch is not None:
                self._watch.cut()
            self._watch = None
            self._enter(TreeCommand.NONE)
            self._on_replacing([record.name for record in closed])
            self.run_task(shutdown.hand_over(self._children, closed))
            self._children.note_change()
        return ""

    def force(self) -> None:
        """Kill every child now. The exit status is that of a forced stop, even if an orderly stop was in progress."""
        self._is_forced = True
        self.end_reason = "the server was forced to end: all its processes were killed"
        self._begin_stopping()
        self.run_task(self._force())

    def hand_over(self) -> None:
        """End this supervisor and nothing else: the next one executes the program anew and adopts the children."""
        if not self.ending.done():
            self.ending.set_result(ExitCode.HAND_OVER)

    def note_ready(self, record: ChildRecord) -> None:
        """A child became ready. A gateway that restarted during a drain is told to drain too, with its journal."""
        if self._watch is not None and not self.is_stopping and role_of(record.name) == "gateway":
            shutdown.ask_to_drain(self._children, record, self._watch.left_s(time.monotonic()))

    def run_task(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a task of the supervisor. An exception in it is a bug and ends the supervisor."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def open(self) -> None:
        """Install the signal handlers. From now on an exception in a callback of the loop ends the supervisor too."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        loop.set_exception_handler(self._on_bug)

    def close(self) -> None:
        """Cancel the tasks and remove the signal handlers."""
        loop = asyncio.get_running_loop()
        for task in self._tasks:
            task.cancel()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        loop.set_exception_handler(None)

    def _on_signal(self, number: signal.Signals) -> None:
        self._log.info("signal received", signal=signal.Signals(number).name)
        if number == signal.SIGHUP and self.on_hangup():
            return
        if number == signal.SIGINT and self._n_repeated:  # the last supervisor has handled it
            self._n_repeated -= 1
            return
        self._n_interrupts += number == signal.SIGINT
        self._note()
        if number == signal.SIGQUIT or (number == signal.SIGINT and self.is_ending):
            self._display.say("forced: killing all processes")
            self.force()
            return
        if number == signal.SIGINT:
            self._display.say("stopping when the requests in progress have finished; Ctrl-C again kills all processes")
        self.stop()

    async def _drain(self, deadline_s: float) -> DrainEnd:
        if self.present is TreeCommand.NONE:  # taken back before it began
            return DrainEnd.CUT
        now_s = time.monotonic()
        watch, self._end_s = DrainWatch(deadline_s, now_s), now_s + deadline_s
        self._watch = watch
        self._note()
        self._log.info("drain began", deadline_s=round(deadline_s, 3), requests=shutdown.requests_left(self._children))
        end = await shutdown.drain(self._children, watch)
        left = 0 if end is DrainEnd.DRAINED else shutdown.requests_left(self._children)
        log = self._log.info if end is DrainEnd.DRAINED else self._log.warning
        log("drain ended", end=end.value, deadline_s=deadline_s, requests_left=left)
        return end

    async def _stop(self, drain_s: float) -> None:
        if self.present is TreeCommand.DRAIN_AND_STOP and await self._drain(drain_s) is DrainEnd.LATE:
            self._failure = self._failure or ExitCode.DEADLINE
            self.end_reason = left_text(shutdown.requests_left(self._children), drain_s)
            self._display.say(self.end_reason)
        if not self.is_stopping:
            self._begin_stopping()
            await self._stop_children()

    async def _stop_children(self) -> None:
        is_clean = await shutdown.stop_in_order(self._children)
        if self._is_forced:
            return
        if not is_clean:
            self._failure, self.end_reason = ExitCode.FORCED, "the death of some process could not be proven; the log names it"
        self._end(self._failure)

    async def _force(self) -> None:
        await shutdown.force(self._children)
        self._end(ExitCode.FORCED)

    def _enter(self, command: TreeCommand) -> None:
        self.present = next_command(self.present, command)
        self._note()

    def _note(self) -> None:
        """Write down the command as it is now."""
        n_interrupts = self._saved.left.command.n_interrupts + self._n_interrupts
        self._saved.note_command(
            StandingCommand(self.present, self._end_s, self._failure, self.end_reason, self._is_forced, n_interrupts)
        )

    def _begin_stopping(self) -> None:
        if not self.is_stopping:
            self._enter(TreeCommand.STOP)
            self._on_stopping()

    def _end(self, exit_status: int) -> None:
        if not self.ending.done():
            self._log.info("server stopped", exit_status=int(exit_status))
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
    """The text for the operator after a drain that was not finished within `drain_s` seconds."""
    left = "1 answer is unfinished" if n_requests == 1 else f"{n_requests} answers are unfinished"
    left = left if n_requests else "no gateway reported in time that all is finished"
    return f"the server ends after {drain_s:g} s of draining: {left}; the next start finishes what its journals hold"
