"""The next supervisor and the spares of its children are there before they are needed, and outlive the supervisor: whoever dies
with the supervisor is replaced without a start of Python."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.directories.run_dir_files import read_pid
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import DEADLINE_S

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with real_server(*WITH_SPARES, "--model", "hash-chain", "--set", "log_level=info") as server:
        yield server


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def wait_prepared(server: RealServer) -> int:
    """Until every child has a spare and the next supervisor waits; returns that one's process id."""
    server.wait_for(lambda report: all(child.has_spare for child in report.children))
    end_s = time.monotonic() + DEADLINE_S
    while True:
        report = server.status()
        known = {server.supervisor_pid, *(child.pid for child in report.children)}
        there = (children_of(server.parent_pid) | children_of(server.supervisor_pid)) - known
        waiting = [pid for pid in there if os.getsid(pid) == pid]
        found = [pid for pid in waiting if "supervisor.children" not in Path(f"/proc/{pid}/cmdline").read_text()]
        if found:
            return found[0]
        assert time.monotonic() < end_s
        time.sleep(0.05)


def is_warm(server: RealServer, name: str, incarnation: int) -> bool:
    line = next(line for line in server.log().splitlines() if "child started" in line and f"child={name} " in line
                and f"incarnation={incarnation} " in line)  # fmt: skip
    return "is_warm=True" in line


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_who_dies_with_the_supervisor_is_replaced_by_its_spare(server: RealServer, how: signal.Signals) -> None:
    for name in ("gateway/0", "worker/0.0"):
        waiting, old = wait_prepared(server), server.supervisor_pid
        before = server.child(name).incarnation
        os.kill(server.child(name).pid, how)
        os.kill(old, how)
        server.wait_supervisor(old, DEADLINE_S)
        after = server.wait_new_incarnation(name, before)
        assert read_pid(server.run_dir) == waiting, "the one that waited"
        assert is_warm(server, name, after.incarnation)


def test_a_next_supervisor_that_was_killed_or_stopped_is_not_waited_for(server: RealServer) -> None:
    for how in (signal.SIGKILL, signal.SIGSTOP):
        waiting, old = wait_prepared(server), server.supervisor_pid
        os.kill(waiting, how)
        os.kill(old, signal.SIGKILL)
        server.wait_supervisor(old, DEADLINE_S)
        assert server.wait_serving().state == "serving"
        assert read_pid(server.run_dir) != waiting


def test_a_supervisor_that_had_to_be_started_has_left_the_next_one_before_it_adopts(server: RealServer) -> None:
    """Its fork server could make one only seconds later, and who kills supervisors does not wait for that."""
    waiting, old = wait_prepared(server), server.supervisor_pid
    os.kill(waiting, signal.SIGKILL)
    os.kill(old, signal.SIGKILL)
    server.wait_supervisor(old, DEADLINE_S)
    for _ in range(3):
        old = server.supervisor_pid
        left = [pid for pid in children_of(old) if "supervisor.children" not in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(old, signal.SIGKILL)
        server.wait_supervisor(old, DEADLINE_S)
        assert [read_pid(server.run_dir)] == left
    assert server.wait_serving().state == "serving"


def test_nothing_of_them_is_left_when_the_server_has_ended(server: RealServer) -> None:
    """The last test of this server."""
    waiting, parent = wait_prepared(server), server.parent_pid
    spares = children_of(server.supervisor_pid)
    assert server.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in {waiting, parent, *spares})
