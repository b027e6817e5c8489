"""A server of ours for the length of a measurement: started on a free port, waited for, ended in order."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from messages.lifecycle.tree import ChildState, TreeState
from messages.run_dir import run_dir_of
from supervisor.operator.calls import NoServer, ask_status
from supervisor.operator.ending import kill_server

_STANDBYS_S = 120.0
_END_S = 60.0
_PR_SET_PDEATHSIG = 1


class ServerDidNotStart(Exception):
    """The server ended, or did not serve in time; the text holds the end of its log."""


@dataclass(frozen=True)
class OwnServer:
    """A running server."""

    port: int
    pid: int
    start_s: float  # from the command until the whole tree serves
    log: Path

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def run_dir(self) -> Path:
        """Its sockets and its lock."""
        return run_dir_of(self.port)


@contextlib.contextmanager
def own_server(
    arguments: Sequence[str],
    deadline_s: float = 600.0,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
    keeps_log: bool = False,
) -> Iterator[OwnServer]:
    """`python -m supervisor start` with these arguments. `environment`: variables to set for it. `port`: 0: a free one.
    Its log is deleted at the end, except after an error or with `keeps_log`.

    Raises: ServerDidNotStart.
    """
    port = port or free_ports(1)[0]
    with tempfile.NamedTemporaryFile(prefix="tardigrade-bench-", suffix=".log", delete=False) as log:
        state = [] if "--state-dir" in arguments else ["--state-dir", str(run_dir_of(port))]  # nothing stays behind
        command = [sys.executable, "-m", "supervisor", "start", "--port", str(port), *state, *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=_end_with_parent,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    path = Path(log.name)
    try:
        start_s = _wait_serving(process, port, path, deadline_s)
        _wait_standbys(port)
        yield OwnServer(port, process.pid, start_s, path)
    finally:
        _end(process, run_dir_of(port))
    if not keeps_log:
        path.unlink(missing_ok=True)  # only when all went well: a failure leaves the log


def _end_with_parent() -> None:
    """Runs in the child: however the load tool ends, the kernel sends its server the signal to drain and end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def free_ports(n: int) -> list[int]:
    """TCP ports that are free at the moment, each another one."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _wait_serving(process: subprocess.Popen[bytes], port: int, log: Path, deadline_s: float) -> float:
    began_s = time.monotonic()
    while time.monotonic() - began_s < deadline_s:
        if process.poll() is not None:
            raise ServerDidNotStart(f"exit status {process.returncode}; the end of {log}:\n{_tail(log)}")
        with contextlib.suppress(NoServer):
            if ask_status(run_dir_of(port)).state == TreeState.SERVING:
                return time.monotonic() - began_s
        time.sleep(0.1)
    raise ServerDidNotStart(f"not serving after {deadline_s:g} s; the end of {log}:\n{_tail(log)}")


def _wait_standbys(port: int) -> None:
    """Standbys load once everything else serves, and slow down what runs meanwhile. Without one that becomes ready it is
    measured all the same."""
    end_s = time.monotonic() + _STANDBYS_S
    while time.monotonic() < end_s:
        with contextlib.suppress(NoServer):
            if all(child.state == ChildState.READY for child in ask_status(run_dir_of(port)).children):
                return
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes], run_dir: Path) -> None:
    """SIGTERM drains. What takes too long is killed; so is a server whose first parent was killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_END_S)
    kill_server(run_dir, _END_S)


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-3000:]
