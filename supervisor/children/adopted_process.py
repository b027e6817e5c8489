"""A child process that an earlier supervisor has started. It is a child of the supervisor's parent now, which reaps it.

If the parent under which it was started has been killed, it has become a child of the machine's first process. Then only the
kernel can tell how it has ended, and not every kernel does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from supervisor.children.process import (
    UNKNOWN_EXIT,
    ChildProcess,
    ExitStatus,
    OnExit,
    decode_exit,
    ignore_ending,
    is_suspended,
    resident_bytes,
)
from supervisor.directories.register import Registered
from supervisor.parent.kernel import exit_code_of, exit_code_of_ending, parent_of
from supervisor.parent.link import Exits
from supervisor.parent.process_sample import sample_of
from supervisor.parent.thread_end import ThreadEnd
from supervisor.policy.own_time import ProcessSample

_STATUS_S = 1.0  # the parent sends the exit status of a dead process within this time
_POLL_S = 0.1  # where there is no pidfd


class AdoptedProcess(ChildProcess):
    """The process of one entry of the register. `exits`: exit statuses of the processes that the parent has reaped.

    Its death is proven by a pidfd, or by its start time; how it ended is what the parent says. `on_exit` is never called before
    the event loop has turned once, so all processes can be adopted first.
    """

    def __init__(self, registered: Registered, exits: Exits, on_exit: OnExit) -> None:
        self.pid = registered.pid
        self.exit: ExitStatus | None = None
        self.on_exit, self.on_ending = on_exit, ignore_ending
        self._registered, self._exits = registered, exits
        self._is_told = parent_of(self.pid) == os.getppid()
        self._loop = asyncio.get_running_loop()
        self._pidfd = -1
        self._timer: asyncio.TimerHandle | None = None
        self._thread_end: ThreadEnd | None = None
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(self.pid)
        if self._is_gone():  # checked after the pidfd was opened: from now on it cannot mean another process
            self._close()
            self._timer = self._loop.call_later(0.0, self._died)
        elif self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._died)
        else:
            self._poll()

    def watch_threads(self) -> None:
        if self.exit is None and self._thread_end is None:
            self._thread_end = ThreadEnd(self.pid, self._thread_ended)

    def _thread_ended(self) -> None:
        if (code := exit_code_of_ending(self.pid)) is not None:
            self.on_ending(decode_exit(code))

    def send_spawn_spec(self, spawn_spec: bytes) -> None:
        raise AssertionError(f"pid {self.pid}: expected a process of this supervisor, got an adopted one")

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif not self._is_gone():
                os.kill(self.pid, number)

    def is_suspended(self) -> bool:
        return is_suspended(self.pid)

    def sample(self) -> ProcessSample | None:
        return sample_of(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def reaped(self, code: int) -> None:
        """The parent has reaped it. `code`: its exit status, or a negative number for the signal that ended it."""
        self._end(decode_exit(code))

    def _is_gone(self) -> bool:
        try:
            return self._registered.is_gone
        except OSError:
            return False

    def _poll(self) -> None:
        if self._is_gone():
            self._died()
        else:
            self._timer = self._loop.call_later(_POLL_S, self._poll)

    def _died(self) -> None:
        """Its death is proven. Its exit status is here already, or comes soon, or is lost."""
        code = self._exits.code_by_pid.get(self.pid)
        if code is None and not self._is_told:
            code = exit_code_of(self.pid, self._pidfd)
        self._close()
        if code is not None:
            self._end(decode_exit(code))
        else:
            self._timer = self._loop.call_later(_STATUS_S if self._is_told else 0.0, self._end, UNKNOWN_EXIT)

    def _end(self, exit_status: ExitStatus) -> None:
        if self.exit is None:
            self._close()
            self.exit = exit_status
            self.on_exit(exit_status)

    def _close(self) -> None:
        if self._thread_end is not None:
            self._thread_end.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
