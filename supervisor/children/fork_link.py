"""The supervisor's end of the fork server, which makes the processes of actors (`fork_server.py`).

An actor is forked where the fork server is warm. Otherwise it gets a new interpreter, so a fork server that is dead, stopped or
busy delays nobody. A look twice a second replaces one that is dead or was stopped from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping

import msgspec
import structlog

from messages.ids import SUPERVISOR
from supervisor.children.fork_server import (
    PACKET_BYTES,
    SUCCESSOR,
    SUPERVISOR_PROGRAM,
    ForkAnswer,
    ForkRequest,
    launch,
    take_early,
)
from supervisor.children.process import LocalProcess, OnExit, Reaper, is_suspended
from supervisor.parent.link import Successor

_ANSWER_S = 1.0  # a fork takes milliseconds
_LOADED_S = 120.0  # for imports and warm-ups, which have the lowest priority
_POLL_S = 0.01
_MAX_DEATHS = 3  # of fork servers in a row that never became warm; after that
_IDLE_S = 5.0  # without a fork or warm-ups, before it imports what only a supervisor needs
_PAUSE_S = 30.0  # between the starts of two of them, because imports take a core


class ForkedChild(Reaper):
    """A child of this process that another one has forked, with the part of `subprocess.Popen` that its owner needs."""

    def __init__(self, pid: int) -> None:
        self._pid, self.returncode = pid, None

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        """Its return code as in `subprocess`; None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Wait for its end; returns its return code."""
        code = self._reap(0)
        assert code is not None, f"pid {self.pid}: expected its end"
        return code

    def kill(self) -> None:
        """Send SIGKILL, if it was not reaped."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, sig: int) -> None:
        """Send a signal, if it was not reaped: before that no other process can have its id."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # somebody else has reaped it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkLink:
    """The fork server of one supervisor, which was started early or is started by the first look."""

    def __init__(self) -> None:
        self._server = take_early()
        self._is_warm, self._since_s = False, time.monotonic()
        self._wanted: tuple[str, ...] = ()  # warm-ups
        self._asked: tuple[str, ...] = ()  # of the present fork server
        self._n_deaths, self._is_closed, self._was_stopped = 0, False, False
        self._used_s = self._since_s
        self._has_program = self._server is not None and self._server.has_program

    @property
    def pid(self) -> int:
        """The process id of the fork server; 0 if there is none."""
        return 0 if self._server is None else self._server.popen.pid

    @property
    def is_warm(self) -> bool:
        """True if it can fork at once."""
        if self._server is not None and not self._is_warm:
            self._server.control.settimeout(0.0)
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._note(_read(self._server.control))
        return self._is_warm

    async def wait_warm(self) -> None:
        """Wait until it can fork, or has ended."""
        while self._server is not None and not self.is_warm and self._server.popen.poll() is None:
            await asyncio.sleep(_POLL_S)

    def load(self, warm_ups: tuple[str, ...]) -> None:
        """Do these warm-ups in advance, in this fork server and in later ones. It forks nothing meanwhile."""
        self._wanted = warm_ups
        if self._asked != warm_ups and self.is_warm:
            self._asked = warm_ups
            self._do(warm_ups)

    def fork(self, request: ForkRequest, descriptors: Mapping[str, int], on_exit: OnExit) -> LocalProcess | None:
        """A new process for this actor, which has these descriptors, does its warm-ups and waits for its spawn spec; None if it
        must be made otherwise."""
        if not self._can_fork():
            return None
        ours, theirs = socket.socketpair()
        with theirs:
            answer = self._ask(request, (theirs.fileno(), *descriptors.values()))
        if not answer.pid:
            ours.close()
            return None
        process = LocalProcess(ForkedChild(answer.pid), on_exit, ours)
        process.descriptors = dict(zip(descriptors, answer.descriptors, strict=True))
        return process

    def fork_supervisor(self) -> Successor | None:
        """The next supervisor, a child of this process that waits for its parent; None if there can be none now."""
        if not self._can_fork():
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            answer = self._ask(ForkRequest(SUPERVISOR), (theirs.fileno(),))
        if answer.pid:
            return Successor(answer.pid, ours)
        ours.close()
        return None

    def fork_prepared_supervisor(self) -> Successor | None:
        """The same, where it has the program already and needs a few milliseconds."""
        return self.fork_supervisor() if self._has_program else None

    def look(self, now_s: float) -> bool:
        """Replace a fork server that is dead, was stopped at two looks in a row, or was not warm in time: at once, or after a
        pause if several in a row never became warm. Called about twice a second. Returns True if another one was started."""
        if self._server is not None and self._server.popen.poll() is None:
            was_stopped, self._was_stopped = self._was_stopped, is_suspended(self.pid)
            is_late = not self.is_warm and now_s - self._since_s > _LOADED_S
            if not is_late and not (was_stopped and self._was_stopped):
                self.load(self._wanted)
                if not self._has_program and self.is_warm and now_s - self._used_s > _IDLE_S:
                    self._has_program = True
                    self._do((SUCCESSOR, SUPERVISOR_PROGRAM))
                return False
            structlog.get_logger().warning("fork server replaced", pid=self.pid, reason="late" if is_late else "stopped")
        self._end()
        if self._is_closed or (self._n_deaths > _MAX_DEATHS and now_s - self._since_s < _PAUSE_S):
            return False
        with contextlib.suppress(OSError):  # the machine refuses a process now: the next look tries again
            self._server, self._since_s = launch(), now_s
            return True
        return False

    def close(self) -> None:
        """End it, and start no other one."""
        self._is_closed = True
        self._end()

    def _can_fork(self) -> bool:
        return self.is_warm and not is_suspended(self.pid)

    def _ask(self, request: ForkRequest, fds: tuple[int, ...]) -> ForkAnswer:
        """Let it fork. A fork server that does not answer is ended."""
        assert self._server is not None
        control, self._used_s = self._server.control, time.monotonic()
        try:
            control.settimeout(_ANSWER_S)
            socket.send_fds(control, [msgspec.json.encode(request)], list(fds))
            answer = _read(control)
        except (OSError, msgspec.DecodeError) as error:
            answer = ForkAnswer(error=str(error) or type(error).__name__)
            self._end()
        if not answer.pid:
            log = structlog.get_logger()
            log.warning("not forked: it gets a new interpreter", child=request.name, reason=answer.error)
        return answer

    def _do(self, warm_ups: tuple[str, ...]) -> None:
        if self._server is None:
            return
        self._is_warm, self._since_s = False, time.monotonic()
        with contextlib.suppress(OSError):  # the next look finds it dead
            self._server.control.settimeout(0.0)
            self._server.control.send(msgspec.json.encode(ForkRequest(warm_ups=warm_ups)))

    def _note(self, answer: ForkAnswer) -> None:
        self._is_warm, self._used_s = answer.is_warm, time.monotonic()
        self._n_deaths = 0

    def _end(self) -> None:
        if self._server is None:
            return
        server, self._server = self._server, None
        self._n_deaths += not self._is_warm
        self._is_warm, self._asked, self._was_stopped, self._has_program = False, (), False, False
        server.control.close()
        server.popen.kill()
        code = server.popen.wait()
        if self._n_deaths > _MAX_DEATHS and not self._is_closed:
            how = "killed" if code < 0 else f"exit status {code}"
            log = structlog.get_logger()
            log.warning(
                "no fork server for a while: actors get new interpreters", deaths=self._n_deaths, how=how, pause_s=_PAUSE_S
            )


def _read(control: socket.socket) -> ForkAnswer:
    """The next answer. Raises: OSError if there is none now or it has ended, msgspec.DecodeError."""
    packet = control.recv(PACKET_BYTES)
    if not packet:
        raise ConnectionResetError("the fork server has ended")
    return msgspec.json.decode(packet, type=ForkAnswer)
