"""A real server for tests: `supervisor start` in a process of its own, on a free port, in a private directory.

It runs on CPU cores unless the flags name GPUs, and there it has a standby only if the flags say so: a second process with the
model would load beside the tests, and a kill of "worker/0.0" would harm the active gang or the other one. So it is with spares,
which take half of the processor time of a short test: those about restarts say `WITH_SPARES`, because that is what users run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from messages.lifecycle.tree import ChildStatus, StatusReport
from supervisor.directories.run_dir_files import read_end, read_parent_pid, read_pid
from supervisor.operator.calls import NoServer, ask_status, is_alive
from supervisor.operator.ending import ServerEnd, kill_server
from tests.support.workers.pulse import PULSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

START_S = 180.0
DEATH_S = 60.0
ANSWER_S = 30.0
_POLL_S = 0.25  # each look takes 5 ms of a core
WITH_SPARES = ("--set", "supervisor.spares=true")
WITHOUT_SPARES = ("--set", "supervisor.spares=false")


def kill_pair(parent: int, supervisor: int) -> None:
    """kill -9 of both processes of a server. The supervisor is stopped, so that it does not see the parent's death; and it dies
    last, because children that lose it tell a stopped parent to go on."""
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(parent, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)


class RealServer:
    """A `supervisor start` of its own, with its address, its run directory and its processes."""

    def __init__(
        self, *flags: str, folder: Path | None = None, program: Sequence[str] = (sys.executable, "-m", "supervisor")
    ) -> None:
        """`program`: the command `supervisor` of this installation, or of another one."""
        self._directory = tempfile.TemporaryDirectory(prefix="tg-", dir=folder)
        self.run_dir = Path(self._directory.name) / "run"
        self.log_path = Path(self._directory.name) / "log"
        self._program = program
        on_cores = ("--gpus", "0", "--no-standby", *WITHOUT_SPARES)
        self._flags = flags if "--gpus" in flags else (*on_cores, *flags)  # a later flag counts
        self._start("0")
        self.url = self.status().url
        self.port = int(self.url.rpartition(":")[2])
        self.zeromq = f"ipc://{self.run_dir}/zeromq-0"

    def start_again(self) -> None:
        """A new supervisor on the same port and in the same directory."""
        self._start(str(self.port))

    def _start(self, port: str) -> None:
        place = ("--port", port, "--run-dir", str(self.run_dir))
        command = [*self._program, "start", *place, *PULSE.flags, *self._flags]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.wait_serving()

    def log(self) -> str:
        """What the server has said."""
        return self.log_path.read_text(errors="replace")

    def status(self) -> StatusReport:
        """The tree as `supervisor status` shows it. Raises: NoServer after ANSWER_S."""
        return ask_status(self.run_dir, ANSWER_S)

    def child(self, name: str) -> ChildStatus:
        """One child's state."""
        return next(child for child in self.status().children if child.name == name)

    def wait_serving(self, deadline_s: float = START_S) -> StatusReport:
        """Until every child is ready. Raises: AssertionError with the log after the deadline, or when the server has ended."""
        return self._wait(lambda report: report.state == "serving", deadline_s)

    def wait_for(self, condition: Callable[[StatusReport], bool], deadline_s: float = START_S) -> StatusReport:
        """Until the status fulfils a condition. Raises: AssertionError as `wait_serving` does."""
        return self._wait(condition, deadline_s)

    def wait_new_incarnation(self, name: str, old_incarnation: int, deadline_s: float = START_S) -> ChildStatus:
        """Until a child is ready in a later incarnation."""

        def is_back(report: StatusReport) -> bool:
            return any(c.name == name and c.incarnation > old_incarnation and c.state == "ready" for c in report.children)

        report = self._wait(is_back, deadline_s)
        return next(child for child in report.children if child.name == name)

    def kill(self, name: str, how: int = signal.SIGKILL, after: int = 0) -> int:
        """Send a signal to a child, in an incarnation after this one; to the next when it is dead just now.

        Returns the incarnation that got it.
        """
        while True:
            report = self._wait(lambda r: any(c.name == name and c.pid and c.incarnation > after for c in r.children), START_S)
            child = next(child for child in report.children if child.name == name)
            try:
                os.kill(int(child.pid), how)
            except ProcessLookupError:  # its death was not proven yet when we asked
                continue
            return int(child.incarnation)

    def stop(self, deadline_s: float = 120.0) -> int:
        """SIGTERM to the parent; returns the exit status of the server."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                return self.process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                self.kill_all()
                raise AssertionError(f"the server did not stop:\n{self.log()}") from None
        if not is_alive(self.run_dir):
            return self.process.returncode
        end = ServerEnd(self.run_dir)  # its first parent was killed
        os.kill(self.parent_pid, signal.SIGTERM)
        assert end.wait(deadline_s), f"the server did not stop:\n{self.log()}"
        return read_end(self.run_dir)[0]

    @property
    def supervisor_pid(self) -> int:
        """The present supervisor: a child of its parent."""
        pid = read_pid(self.run_dir)
        assert pid is not None
        return pid

    @property
    def parent_pid(self) -> int:
        """The present parent: `process`, until that was killed."""
        pid = read_parent_pid(self.run_dir)
        assert pid
        return pid

    def kill_parent(self) -> int:
        """kill -9 of the parent; returns its process id."""
        pid = self.parent_pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_both(self) -> None:
        """kill -9 of the parent and the supervisor, before one of them can replace the other."""
        kill_pair(self.parent_pid, self.supervisor_pid)
        end = ServerEnd(self.run_dir)
        assert end.wait(DEATH_S), self.log()
        end.close()

    def wait_parent(self, old_pid: int, deadline_s: float = START_S) -> StatusReport:
        """Until every child is ready under another parent than this one."""
        return self._wait(lambda report: report.state == "serving" and report.parent_pid not in (0, old_pid), deadline_s)

    def kill_supervisor(self, how: int = signal.SIGKILL) -> int:
        """Send a signal to the supervisor; returns its process id."""
        pid = self.supervisor_pid
        os.kill(pid, how)
        return pid

    def wait_supervisor(self, old_pid: int, deadline_s: float = START_S) -> StatusReport:
        """Until every child is ready under another supervisor than this one."""
        return self._wait(lambda report: report.state == "serving" and self.supervisor_pid != old_pid, deadline_s)

    def kill_all(self) -> None:
        """kill -9 of the parent, the supervisor, and every child."""
        if not is_alive(self.run_dir) and self.process.poll() is None:
            self.process.kill()
        kill_server(self.run_dir, DEATH_S)
        self.process.wait()

    def clean(self) -> None:
        """Remove its directory; kill what still runs."""
        self.kill_all()
        self._directory.cleanup()

    def _wait(self, condition, deadline_s: float = START_S) -> StatusReport:
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            try:
                report = ask_status(self.run_dir)  # one that was lost with its supervisor is asked again soon
                if condition(report):
                    return report
            except NoServer:
                pass
            has_ended = self.process.poll() is not None and not is_alive(self.run_dir)
            assert not has_ended, f"the server ended:\n{self.log()}"
            time.sleep(_POLL_S)
        raise AssertionError(f"not within {deadline_s} s:\n{self.log()}")


@contextmanager
def real_server(*flags: str, folder: Path | None = None) -> Iterator[RealServer]:
    """A server that is stopped in order at the end; a bad exit status is a failure. Its directory is made in `folder`."""
    server = RealServer(*flags, folder=folder)
    try:
        yield server
        assert server.stop() == 0, server.log()
    finally:
        server.clean()
