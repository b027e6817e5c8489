"""The next supervisor, made in advance: a fork of the parent that has imported the program and waits to be needed.

Python and the imports of a supervisor take half a second of a free core, and several times as long of a busy one, in which
nobody replaces a child that has died. The waiting process holds no lock, no listening socket and no child but a fork server of
its own; it dies with the parent while it waits. It runs the program as it was on disk when it was made, like the spares of
children.

A supervisor that follows another one makes the next one itself, by a fork of its fork server, and gives it to the parent: the
parent's own fork would have to import the program first.

Only the standard library is imported here, because the parent imports this file.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import time
from collections.abc import Callable

from messages.outcomes import ExitCode
from supervisor.parent.execution import STOP_SIGNALS
from supervisor.parent.kernel import die_with, outlive_parent
from supervisor.parent.link import FRESH, SPARE
from supervisor.parent.process_sample import sample_of
from supervisor.parent.unhurried import run_unhurried

_PROGRAM = "supervisor.start"
_FORK_SERVER = "supervisor.children.fork_server"
_MOST_DEATHS, _WINDOW_S = 3, 60.0  # of processes that were never needed, in this time; then no more are made for a while


class NextSupervisor:
    """At most one process that waits. `pid` 0: there is none."""

    def __init__(self) -> None:
        self.pid = 0
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._deaths_s, self._is_fresh = list[float](), False

    def look(self) -> bool:
        """Look whether the one that waits has ended: only its link tells that where a supervisor has made it and reaps it.
        Returns True if another one may be made."""
        if self.pid and self._has_ended():
            self.died()
        now_s = time.monotonic()
        self._deaths_s = [at_s for at_s in self._deaths_s if now_s - at_s < _WINDOW_S]
        return not self.pid and len(self._deaths_s) < _MOST_DEATHS

    def make(self, let_go: Callable[[], None]) -> socket.socket | None:
        """Fork. Returns None in the parent. In the new process: closes what it has of the parent with `let_go`, and returns its
        end of the link as soon as it is needed. Raises: OSError."""
        self.close()
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            other.close()
            return None
        os.setsid()  # so that Ctrl-C reaches the parent alone
        die_with(parent)
        let_go()
        _wait_needed(other)
        return other

    def go_on(self, pid: int, end: int) -> None:
        """A process that an earlier program of this process has made waits with this process id; `end`: our end of its link."""
        self.close()
        self.pid, self._end = pid, socket.socket(fileno=end)

    def take_given(self, packet: bytes, end: int) -> None:
        """A supervisor has made a process that waits. `packet`: FRESH and its process id, if it has the program that is on disk
        now: it waits instead of the one before; SPARE and its process id: it waits if no other one does. `end`: our end of its
        link, without which it ends."""
        kind, pid = packet[: len(FRESH)], int(packet[len(FRESH) :])
        self.look()
        if kind == SPARE and self.pid:
            os.close(end)
            return
        self.kill()
        self.go_on(pid, end)
        self._is_fresh = kind == FRESH

    def for_new_program(self) -> tuple[int, int] | None:
        """What `go_on` needs in the program that is executed in this process now. One that has the old program is ended."""
        if self._is_fresh:
            return self.pid, self._end.fileno()
        self.kill()
        return None

    def take(self) -> tuple[int, socket.socket] | None:
        """The process id of the one that waits and the parent's end of its link, which belong to the caller; None if there is
        none that runs."""
        self.look()
        if not self.pid:
            return None
        sample = sample_of(self.pid)
        if sample is None or sample.is_suspended:
            self.kill()
            return None
        taken, self.pid, self._is_fresh = (self.pid, self._end), 0, False
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return taken

    def died(self) -> None:
        """The one that waits has been reaped."""
        self.pid, self._is_fresh = 0, False
        self._deaths_s.append(time.monotonic())

    def kill(self) -> None:
        """End the one that waits, and make no other one until its death is reaped."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _has_ended(self) -> bool:
        """True if its end of the link is closed."""
        try:
            return not self._end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:  # it had not read everything
            return True

    def close(self) -> None:
        """Close the parent's end of the link."""
        self._end.close()


def _import_program() -> None:
    __import__(_PROGRAM)


def _wait_needed(link: socket.socket) -> None:
    """Import the program, and wait for the first packet. Ends this process if the parent ends before that; from then on it
    outlives the parent, whose place it takes."""
    usual = [(number, signal.signal(number, signal.SIG_IGN)) for number in STOP_SIGNALS]
    run_unhurried(_import_program)
    importlib.import_module(_FORK_SERVER).launch_early_whole()
    if not link.recv(1, socket.MSG_PEEK):
        os._exit(ExitCode.DONE)
    outlive_parent()
    for number, handler in usual:
        signal.signal(number, handler)
