"""The supervisor after the death of a parent is a fork of the fork server: a child that dies just then is replaced soon."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from supervisor.children.fork_server import find_fork_server
from tests.support.real_server import WITH_SPARES, real_server

pytestmark = pytest.mark.timeout(600)


def test_a_child_that_dies_while_the_supervisor_becomes_the_parent_is_replaced_by_its_spare() -> None:
    """Twice: the second time by what the first successor has forked."""
    with real_server(*WITH_SPARES, "--model", "hash-chain", "--set", "log_level=info") as server:
        for _ in range(2):
            server.wait_for(lambda report: all(child.has_spare for child in report.children))
            before, old, supervisor = server.child("gateway/0"), server.kill_parent(), server.supervisor_pid
            while b"supervisor.parent_program" not in Path(f"/proc/{supervisor}/cmdline").read_bytes():
                pass  # nobody replaces a child from here on
            os.kill(before.pid, signal.SIGKILL)
            after = server.wait_new_incarnation("gateway/0", before.incarnation)
            assert server.wait_parent(old).parent_pid == supervisor
            assert Path(f"/proc/{server.supervisor_pid}/comm").read_text() == "supervisor\n", "forked, not a new interpreter"
            assert find_fork_server(server.supervisor_pid)
            line = next(
                line
                for line in server.log().splitlines()
                if "child started" in line and "child=gateway/0 " in line and f"incarnation={after.incarnation} " in line
            )
            assert "is_warm=True" in line


def test_the_log_says_that_children_are_adopted_not_that_they_took_that_long_to_start() -> None:
    with real_server("--model", "hash-chain", "--set", "log_level=info") as server:
        names = [child.name for child in server.status().children]
        n_ready = server.log().count("child ready ")
        server.wait_supervisor(server.kill_supervisor())
        server.wait_for(lambda report: all(child.state == "ready" for child in report.children))
        log = server.log()
        assert log.count("child ready ") == n_ready
        assert all(any("child adopted" in line and f"child={name} " in line for line in log.splitlines()) for name in names)
