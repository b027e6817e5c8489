"""Signals that people, shells and tools send by mistake end no process of a server; SIGQUIT ends it at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from messages.client import Client
from messages.outcomes import ExitCode
from supervisor.directories.run_dir_files import read_end
from supervisor.operator.ending import ServerEnd
from tests.support.real_server import START_S, RealServer

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
IGNORED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_OWN = ("parent", "supervisor")


def processes_of(server: RealServer) -> dict[str, int]:
    """The process ids of the parent, the supervisor and every child, by name."""
    report = server.wait_serving()
    children = {child.name: child.pid for child in report.children}
    return {"parent": server.parent_pid, "supervisor": server.supervisor_pid, **children}


def assert_ignored(server: RealServer) -> None:
    before = processes_of(server)
    for name, pid in before.items():
        for number in IGNORED if name in _OWN else (*IGNORED, signal.SIGQUIT):
            os.kill(pid, number)
    assert not [
        name for name, pid in before.items() if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    ]
    with Client(server.zeromq) as client:
        assert client.generate([1, 2, 3], max_tokens=4).tokens
    assert processes_of(server) == before


def test_signals_without_a_meaning_are_ignored_and_quit_ends_the_server_at_once() -> None:
    server = RealServer("--model", "hash-chain")
    try:
        assert_ignored(server)
        killed = server.kill_parent()  # the supervisor becomes the parent, and another one adopts the children
        server.wait_parent(killed)
        assert_ignored(server)
        end = ServerEnd(server.run_dir)
        os.kill(server.parent_pid, signal.SIGQUIT)
        assert end.wait(START_S)
        end.close()
        assert read_end(server.run_dir)[0] == ExitCode.FORCED
    finally:
        server.clean()
