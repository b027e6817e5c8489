"""One child process: how it is started and killed, how its death is proven, and how it ended. No policy.

The death of a local process is proven by a pidfd, which becomes readable when the process has exited and can never mean
another process. Where there is none (in some sandboxes, or when no descriptor is left) a thread waits for the child instead.
A process with a GPU takes 0.1 to 0.4 s to end, because its memory is freed; its threads end before that (`thread_end.py`).
Children hold nothing that a kill would lose, so there are only two ways to end one: a Stop message or SIGKILL. Children ignore
SIGTERM, because service managers send it to every process of a group at once, while the supervisor stops them in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from supervisor.parent.kernel import exit_code_of_ending
from supervisor.parent.process_sample import read_file, sample_of
from supervisor.parent.thread_end import ThreadEnd
from supervisor.policy.own_time import ProcessSample

_SPAWN_SPEC_BYTES = 65_536


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: its own exit status, or the signal that ended it."""

    code: int  # 0 to 255; -1 when a signal ended it, or when nobody knows
    signal_name: str  # "SIGKILL", ...; empty when it exited by itself

    def __str__(self) -> str:
        if self == UNKNOWN_EXIT:
            return "exit status unknown"
        return f"killed by {self.signal_name}" if self.signal_name else f"exit status {self.code}"


UNKNOWN_EXIT = ExitStatus(-1, "")  # of a process whose exit status was lost with the supervisor or its parent
OnExit = Callable[[ExitStatus], None]
OnEnding = Callable[[ExitStatus | None], None]


class ChildProcess(Protocol):
    """A process that a `Spawner` has started, on this machine or on another one.

    `pid`: its process id on its machine. `exit`: how it ended, None until its death is proven. `on_exit(status)` is called
    once, on the event loop, after that. `on_ending(status)` is called at most once, before: the process has begun to end. Its
    status is how it will have ended, None if that is not known yet.
    """

    pid: int
    exit: ExitStatus | None
    on_exit: OnExit
    on_ending: OnEnding
    descriptors: Mapping[str, int] | None = None  # that it has inherited, by name; None: those that its child has now

    def send_spawn_spec(self, spawn_spec: bytes) -> None:
        """Give the waiting process its spawn spec (JSON), after which it becomes that actor. Called once."""
        ...

    @property
    def is_warm(self) -> bool:
        """True once it has done its warm-ups and waits for its spawn spec."""
        return True

    def watch_threads(self) -> None:
        """It has all its threads: from now on their end may be the first sign of its own."""

    def kill(self) -> None:
        """End it at once. Does nothing when it is dead already."""
        ...

    def resume(self) -> None:
        """Tell it to continue (SIGCONT). Does nothing when it is not stopped, or is dead."""
        ...

    def is_suspended(self) -> bool:
        """True if it was stopped from outside (SIGSTOP, a debugger)."""
        ...

    def sample(self) -> ProcessSample | None:
        """Its threads now; None if nothing is known about them."""
        return None

    def resident_bytes(self) -> int:
        """Resident memory in bytes, shared pages included; 0 if the process has ended."""
        ...


def ignore_ending(exit_status: ExitStatus | None) -> None:
    """Do nothing: `on_ending` of a process that nothing depends on."""


def decode_exit(returncode: int) -> ExitStatus:
    """The exit status for a `returncode` of `subprocess`, in which negative numbers are signals."""
    if returncode >= 0:
        return ExitStatus(returncode, "")
    try:
        return ExitStatus(-1, signal.Signals(-returncode).name)
    except ValueError:
        return ExitStatus(-1, f"signal {-returncode}")


def is_suspended(pid: int) -> bool:
    """True if a process was stopped from outside."""
    try:
        state = read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in (b"T", b"t")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes; 0 if there is none."""
    try:
        return int(read_file(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def has_said_warm(stdin: socket.socket) -> bool:
    """True if the process at the other end has said that it waits for its spawn spec. The next supervisor can read that too."""
    with contextlib.suppress(OSError):
        return bool(stdin.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


class Reaper(Protocol):
    """What reaps a child of this process: `subprocess.Popen`, or the like of it for one that was forked elsewhere."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def kill(self) -> None: ...

    def send_signal(self, sig: int) -> None: ...


class Strays:
    """Descendants whose own parent has ended: they are children of a process that is a subreaper, which must reap them."""

    def __init__(self) -> None:
        self._seen = 0

    def reap(self, known: set[int]) -> None:
        """Reap those that had ended at the last call already, but none of `known`, which others reap. Called twice a second."""
        with contextlib.suppress(ChildProcessError):  # there is no child
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in known or ended.si_pid != self._seen:
                    self._seen = ended.si_pid
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)


class LocalProcess(ChildProcess):
    """A child process on this machine."""

    def __init__(self, popen: Reaper, on_exit: OnExit, stdin: socket.socket) -> None:
        self.pid, self._stdin, self._is_warm = popen.pid, stdin, False
        self.exit: ExitStatus | None = None
        self.on_exit, self.on_ending = on_exit, ignore_ending
        self._popen, self._is_ending = popen, False
        self._thread_end: ThreadEnd | None = None
        self._loop = asyncio.get_running_loop()
        self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(popen.pid)
            self._loop.add_reader(self._pidfd, self._reap)
        except OSError:
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
            self._start_waiting()

    @classmethod
    def spawn(
        cls, argv: Sequence[str], on_exit: OnExit, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
    ) -> LocalProcess:
        """Start `argv` in a session of its own. It waits for `send_spawn_spec` on its standard input, and shares the
        supervisor's standard output and error. `env` is added to the supervisor's own.

        Raises: OSError when the program cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                popen = subprocess.Popen(
                    argv,
                    stdin=theirs.fileno(),
                    env={**os.environ, **(env or {})},
                    pass_fds=tuple(pass_fds),
                    start_new_session=True,
                )
            return cls(popen, on_exit, ours)
        except BaseException:
            ours.close()
            raise

    def send_spawn_spec(self, spawn_spec: bytes) -> None:
        """Write at most 64 KiB to its standard input and end it. A socket holds that much: the child may not read yet."""
        assert len(spawn_spec) <= _SPAWN_SPEC_BYTES, (
            f"spawn spec: expected at most {_SPAWN_SPEC_BYTES} bytes, got {len(spawn_spec)}"
        )
        with contextlib.suppress(OSError):  # it died already: the pidfd will report it
            self._stdin.sendall(spawn_spec)
            self._stdin.shutdown(socket.SHUT_WR)
        self._loop.add_reader(self._stdin, self._look)

    @property
    def stdin_fd(self) -> int:
        """Our end of its standard input."""
        return self._stdin.fileno()

    @property
    def is_warm(self) -> bool:
        self._is_warm = self._is_warm or has_said_warm(self._stdin)
        return self._is_warm

    def kill(self) -> None:
        if self.exit is None:
            self._popen.kill()  # checks first whether it was reaped: before that no other process can have its id

    def resume(self) -> None:
        if self.exit is None:
            self._popen.send_signal(signal.SIGCONT)

    def is_suspended(self) -> bool:
        return is_suspended(self.pid)

    def sample(self) -> ProcessSample | None:
        return sample_of(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def _look(self) -> None:
        """Its standard input is closed: it never does that while it works."""
        with contextlib.suppress(OSError):
            if self._stdin.recv(16, socket.MSG_DONTWAIT):
                self._is_warm = True
                return
        self._loop.remove_reader(self._stdin)
        self._begins_to_end(exit_code_of_ending(self.pid))

    def watch_threads(self) -> None:
        if self.exit is None and self._thread_end is None:
            self._thread_end = ThreadEnd(self.pid, self._thread_ended)

    def _thread_ended(self) -> None:
        """If it ends by itself, its status is not known yet: then its standard input tells it."""
        if (code := exit_code_of_ending(self.pid)) is not None:
            self._begins_to_end(code)

    def _begins_to_end(self, code: int | None) -> None:
        if not self._is_ending:
            self._is_ending = True
            self.on_ending(None if code is None else decode_exit(code))

    def _reap(self) -> None:
        returncode = self._popen.poll()
        if returncode is None or self.exit is not None:
            return
        self._loop.remove_reader(self._stdin)
        if self._thread_end is not None:
            self._thread_end.close()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self.exit = decode_exit(returncode)
        self._stdin.close()
        self.on_exit(self.exit)

    def _start_waiting(self) -> None:
        """Wait for the process in a thread. If no thread can be started, kill it, because its end could not be noticed.

        Raises: OSError if it was killed.
        """
        try:
            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()
        except RuntimeError as error:
            self._popen.kill()
            self._popen.wait()
            raise OSError(errno.EAGAIN, str(error)) from None

    def _wait_in_thread(self) -> None:
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the supervisor has ended
            self._loop.call_soon_threadsafe(self._reap)
