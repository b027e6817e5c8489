"""The next supervisor of a rolling restart is loaded before the present one ends. So a program that cannot be imported ends
nobody, and a child that dies between the two supervisors is replaced by its spare."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_server import WITH_SPARES, RealServer, real_server

pytestmark = pytest.mark.timeout(600)
_FLAGS = ("--model", "hash-chain", "--set", "log_level=info", *WITH_SPARES)
_RESTART_S = 300.0
# run by every Python process that has its directory in PYTHONPATH
_BROKEN = """
import os, sys
if os.path.exists({flag!r}):
    sys.modules["supervisor.start"] = None  # an import of it fails
"""


def restart_of(server: RealServer) -> subprocess.Popen[str]:
    """`supervisor restart` with the program of this process."""
    command = [sys.executable, "-m", "supervisor", "restart", "--run-dir", str(server.run_dir)]
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "").partition(os.pathsep)[2]}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def test_a_program_that_cannot_be_imported_ends_no_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "broken"
    (tmp_path / "sitecustomize.py").write_text(_BROKEN.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])]))
    with real_server(*_FLAGS) as server:
        before = server.status()
        flag.touch()
        said, _ = (command := restart_of(server)).communicate(timeout=_RESTART_S)
        assert (command.returncode, "supervisor: its new process ended before it was used" in said) == (1, True), said
        after = server.wait_serving()
        assert (after.supervisor_pid, after.parent_pid) == (before.supervisor_pid, before.parent_pid)
        assert [child.incarnation for child in after.children] == [child.incarnation for child in before.children]
        flag.unlink()  # the operator puts the old code back
        said, _ = (command := restart_of(server)).communicate(timeout=_RESTART_S)
        assert command.returncode == 0, said
        assert server.wait_serving().supervisor_pid != before.supervisor_pid


def test_a_child_that_dies_between_two_supervisors_is_replaced_by_its_spare() -> None:
    with real_server(*_FLAGS) as server:
        report = server.wait_for(lambda report: all(child.has_spare for child in report.children))
        gateway = next(child for child in report.children if child.name == "gateway/0")
        command = restart_of(server)
        while Path(f"/proc/{report.supervisor_pid}").exists():
            assert command.poll() is None, "it ends with the last group"
        os.kill(gateway.pid, signal.SIGKILL)
        said, _ = command.communicate(timeout=_RESTART_S)
        assert command.returncode == 0, said
        started = [line for line in server.log().splitlines() if "child started" in line and "child=gateway/0 " in line]
        assert [
            f"incarnation={number} is_warm={is_warm}" in line
            for line, number, is_warm in zip(started, (1, 2, 3), (False, True, True), strict=True)
        ] == [True] * 3, started
