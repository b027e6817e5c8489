"""A server whose log goes to a pipe that nobody reads (`less`, Ctrl-S, a collector that hangs) serves, and heals, as ever."""

from __future__ import annotations

import os
import signal
import time

import pytest

from supervisor.operator.calls import ask_status
from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, serving

pytestmark = pytest.mark.timeout(600)


def fill(server: RunningServer) -> None:
    """Leave no room in the pipe of its log."""
    assert server.process.stderr is not None
    pipe = os.open(f"/proc/self/fd/{server.process.stderr.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(pipe, b"\n")
    except BlockingIOError:
        os.close(pipe)


def incarnations(server: RunningServer) -> dict[str, int]:
    """Of all children, once the server serves."""
    end_s = time.monotonic() + DEADLINE_S
    while (report := ask_status(server.run_dir, DEADLINE_S)).state != "serving":
        assert time.monotonic() < end_s
        time.sleep(0.05)
    return {child.name: child.incarnation for child in report.children}


def test_a_log_that_nobody_reads_stops_no_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("run") / "d", "--log-level", "info") as server:
        expected, before = server.complete("the same"), incarnations(server)
        fill(server)
        assert server.complete("the same") == expected  # each answer is a line of the gateway
        for name in ("worker/0.0", "scheduler/0"):
            assert server.kill(name)  # each death is a line of the supervisor
            before[name] += 1
            assert server.complete("the same") == expected
            assert incarnations(server) == before, "nobody else has died"
        os.kill(server.supervisor_pid, signal.SIGKILL)
        assert server.complete("the same") == expected
        assert incarnations(server) == before, "nobody else has died"
        server.wait_said_anew("\n\n")  # there is room again; the greeting has an empty line too
        assert server.kill("scheduler/0")
        server.wait_said_anew("child died")
        assert server.complete("the same") == expected
        assert server.end(signal.SIGTERM) == 0
