"""A parent or a supervisor that is stopped (SIGSTOP) is noticed by the other one, or by the children, which go on serving."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import VOCABULARY

pytestmark = pytest.mark.timeout(600)
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with real_server("--model", "hash-chain", "--set", "supervisor.spares=false") as server:  # no next supervisor waits
        yield server


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def incarnations(server: RealServer) -> dict[str, int]:
    return {child.name: child.incarnation for child in server.wait_serving().children}


def ask(server: RealServer) -> None:
    body = {"tokens": [1, 2, 3], "max_tokens": 5, "temperature": 0.0}
    answer = httpx.post(f"{server.url}/v1/generate", json=body, timeout=DEADLINE_S)
    assert answer.json()["tokens"] == hash_chain_tokens([1, 2, 3], 5, 0, VOCABULARY)


def test_a_supervisor_that_is_stopped_as_soon_as_it_exists_is_replaced(server: RealServer) -> None:
    before = incarnations(server)
    parent, known = server.parent_pid, children_of(server.parent_pid)
    known |= {child.pid for child in server.status().children} | children_of(server.supervisor_pid)
    server.kill_supervisor()
    deadline = time.monotonic() + DEADLINE_S
    while not (new := children_of(parent) - known):
        assert time.monotonic() < deadline
    frozen = new.pop()
    os.kill(frozen, signal.SIGSTOP)  # long before it is open
    began_s = time.monotonic()
    ask(server)
    server.wait_supervisor(frozen, DEADLINE_S)
    print(f"a supervisor that was stopped at its start was replaced after {time.monotonic() - began_s:.2f} s")
    assert "is stopped: killed, to be replaced" in server.log()
    assert incarnations(server) == before


def test_a_parent_that_is_stopped_is_replaced_and_so_is_the_supervisor_then(server: RealServer) -> None:
    before, parent = incarnations(server), server.parent_pid
    os.kill(parent, signal.SIGSTOP)
    began_s = time.monotonic()
    server.wait_parent(parent, DEADLINE_S)
    print(f"a parent that was stopped was replaced after {time.monotonic() - began_s:.2f} s")
    server.wait_supervisor(server.kill_supervisor(), DEADLINE_S)
    ask(server)
    assert incarnations(server) == before


def test_who_is_stopped_with_the_one_that_would_replace_it_holds_nobody_up() -> None:
    """A worker with its supervisor; then the parent, whose supervisor dies: the children tell it to continue."""
    with real_server(*WITH_SPARES, "--model", "hash-chain") as server:
        before, supervisor, parent = incarnations(server), server.supervisor_pid, server.parent_pid
        worker = int(server.child("worker/0.0").pid)
        for pid in (supervisor, worker):
            os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
        ask(server)
        print(f"a worker that was stopped with its supervisor was replaced after {time.monotonic() - began_s:.2f} s")
        server.wait_supervisor(supervisor, DEADLINE_S)
        before["worker/0.0"] += 1
        assert incarnations(server) == before
        os.kill(parent, signal.SIGSTOP)
        began_s = time.monotonic()
        server.wait_supervisor(server.kill_supervisor(), DEADLINE_S)
        print(f"a supervisor that was killed under a stopped parent was replaced after {time.monotonic() - began_s:.2f} s")
        ask(server)
        assert incarnations(server) == before
        assert server.parent_pid == parent
