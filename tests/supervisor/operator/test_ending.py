"""The end of a server is the end of all its processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.directories.run_dir import RunDir
from supervisor.operator import ending
from supervisor.operator.ending import ServerEnd, kill_server

DEADLINE_S = 60.0
HOLD = "import os, time; os.write(1, b'x'); time.sleep(600)"


@pytest.fixture
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run directory whose supervisor is this process, but does not say so: nobody shall kill it. Its path is short enough for
    sockets."""
    taken = RunDir.acquire(tmp_path_factory.mktemp("e") / "d")
    (taken.path / "supervisor.pid").unlink()
    return taken


@pytest.fixture
def parent(run_dir: RunDir) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock too, as the parent does."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, pass_fds=[run_dir.lock_fd])
    assert process.stdout is not None
    assert process.stdout.read(1) == b"x"
    (run_dir.path / "parent.pid").write_text(str(process.pid))
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        process.stdout.close()


def test_a_server_has_not_ended_while_its_parent_lives(run_dir: RunDir, parent: subprocess.Popen[bytes]) -> None:
    end = ServerEnd(run_dir.path)
    assert not end.is_reached
    run_dir.release(is_temporary=True)  # all that the supervisor does at its end
    assert not end.wait(0.0)
    parent.kill()
    assert end.wait(DEADLINE_S)
    assert end.killed == []
    end.close()


def test_a_parent_that_does_not_end_is_killed_and_named(
    run_dir: RunDir, parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_LAST_S", 0.0)
    monkeypatch.setattr(ending.time, "sleep", lambda _: run_dir.release())
    end = ServerEnd(run_dir.path)
    assert end.wait(DEADLINE_S)
    assert end.killed == [f"the parent (pid {parent.pid})"]
    assert parent.wait(DEADLINE_S) == -signal.SIGKILL
    end.close()


def test_a_directory_without_a_lock_has_no_server(tmp_path: Path) -> None:
    assert ServerEnd(tmp_path).wait(0.0)
    assert kill_server(tmp_path, 0.0)
