"""One operating-system child: spawn it, prove its death, say how it ended, kill it. No policy.

Death is proven by a pidfd, which becomes readable when the process has exited and can never mean another process (where
there is none, as in some sandboxes or when no descriptor is left, a thread waits for the child instead). Children
hold nothing that a kill would lose, so there are only two ways to end one: it is asked over the post, or it is killed;
SIGTERM is ignored by children because service managers send it to every process of a group at once, and the order in which
the tree ends is the supervisor's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_PIPE_BYTES = 65_536


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: its own exit status, or the signal that ended it."""

    code: int  # 0 to 255; -1 when a signal ended it
    signal_name: str  # "SIGKILL", ...; empty when it exited by itself

    def __str__(self) -> str:
        return f"killed by {self.signal_name}" if self.signal_name else f"exit status {self.code}"


def decode_exit(returncode: int) -> ExitStatus:
    """`returncode` as `subprocess` gives it: negative numbers are signals."""
    if returncode >= 0:
        return ExitStatus(returncode, "")
    try:
        return ExitStatus(-1, signal.Signals(-returncode).name)
    except ValueError:
        return ExitStatus(-1, f"signal {-returncode}")


class ChildProcess:
    """A running child. `on_exit(status)` is called once, on the event loop, after its death is proven."""

    def __init__(self, popen: subprocess.Popen[bytes], on_exit: Callable[[ExitStatus], None]) -> None:
        self.pid = popen.pid
        self.exit: ExitStatus | None = None
        self.on_exit = on_exit
        self._popen = popen
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
        cls,
        argv: Sequence[str],
        on_exit: Callable[[ExitStatus], None],
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ChildProcess:
        """Start `argv` in a session of its own. It waits for `give_birth` on its standard input; output and errors go where
        the supervisor's go. `env` is added to the supervisor's own.

        Raises: OSError when the program cannot be started.
        """
        popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        return cls(popen, on_exit)

    def give_birth(self, birth: bytes) -> None:
        """Write these bytes (at most one pipe's worth, 64 KiB: the child may not read yet) and close its standard input."""
        assert len(birth) <= _PIPE_BYTES, f"birth: expected at most {_PIPE_BYTES} bytes, got {len(birth)}"
        stdin = self._popen.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died already: the pidfd will say so
            stdin.write(birth)
            stdin.close()

    def kill(self) -> None:
        """SIGKILL. Nothing happens to a process that is dead already."""
        if self.exit is None:
            self._popen.kill()  # looks first whether it was reaped: its process id cannot be another's before that

    def _reap(self) -> None:
        returncode = self._popen.poll()
        if returncode is None or self.exit is not None:
            return
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self.exit = decode_exit(returncode)
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()
        self.on_exit(self.exit)

    def _start_waiting(self) -> None:
        """Watch by a thread. Without one either, nobody would see this process end: it is ended, and its birth refused."""
        try:
            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()
        except RuntimeError as error:
            self._popen.kill()
            self._popen.wait()
            raise OSError(errno.EAGAIN, str(error)) from None

    def _wait_in_thread(self) -> None:
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._reap)
