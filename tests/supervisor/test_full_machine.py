"""A real server on a disk without room, and one without descriptors: what dies comes back, and its books are kept."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.operator.calls import ask_status
from tests.support.real_server import RealServer
from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, serving
from tests.support.supervisor.small_disk import full, limited, small_disk


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory, on a disk of its own where that is possible."""
    with small_disk(tmp_path_factory.mktemp("disk")) as path:
        yield path


def until(condition: Callable[[], bool]) -> None:
    """Look until it is so; fails at the deadline."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def is_back(server: RunningServer, name: str) -> bool:
    """Is it in its second incarnation, and ready?"""
    child = next(child for child in ask_status(server.run_dir, DEADLINE_S).children if child.name == name)
    return (child.state, child.incarnation) == ("ready", 2)


def test_who_dies_on_a_full_disk_comes_back_and_is_written_down_later(disk: Path) -> None:
    run_dir = disk / "d"
    with serving(run_dir, "--log-level", "info") as server:
        with full(disk, server.supervisor_pid):
            for name in ("worker/0.0", "scheduler/0"):
                assert server.kill(name)
                until(lambda name=name: is_back(server, name))
            assert json.loads((run_dir / "incarnations.json").read_text())["worker/0.0"] == 1
        until(lambda: json.loads((run_dir / "incarnations.json").read_text())["worker/0.0"] == 2)
        until(lambda: ask_status(run_dir, DEADLINE_S).state == "serving")
        alive = {child.pid for child in ask_status(run_dir, DEADLINE_S).children}
        until(lambda: alive <= {child["pid"] for child in json.loads((run_dir / "children.json").read_text())["children"]})
        assert server.complete("after the disk was full")
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "file not written, kept in memory" in server.said + server.process.stderr.read()


def test_a_supervisor_that_dies_is_replaced_although_the_disk_and_the_log_are_full(disk: Path) -> None:
    log = ("sh", "-c", 'exec "$@" > /dev/full 2>&1', "sh", sys.executable, "-m", "supervisor")
    server = RealServer("--model", "hash-chain", "--set", "supervisor.spares=false", folder=disk, program=log)
    try:
        with full(disk, server.parent_pid):
            server.kill_supervisor()
            server.kill("worker/0.0")
            assert server.wait_new_incarnation("worker/0.0", 1, DEADLINE_S).incarnation == 2
        server.wait_serving()
        assert server.stop() == 0
    finally:
        server.clean()


def test_who_dies_while_no_descriptor_is_left_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    run_dir = tmp_path_factory.mktemp("run") / "d"
    with serving(run_dir, "--set", "supervisor.spares=false", "--log-level", "info") as server:
        pid = next(child.pid for child in ask_status(run_dir, DEADLINE_S).children if child.name == "worker/0.0")
        with limited(server.supervisor_pid, resource.RLIMIT_NOFILE, 4):  # what is open stays open
            os.kill(pid, signal.SIGKILL)
            server.wait_said("start refused")
            server.wait_said("Too many open files")
        until(lambda: is_back(server, "worker/0.0"))
        assert server.complete("after descriptors were out")
        assert server.end(signal.SIGTERM) == 0
