"""How operators' commands find a server: one whose supervisor is being replaced is waited for."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zmq

from messages.outcomes import ExitCode
from supervisor.operator import calls
from supervisor.operator.command_line import reach
from supervisor.parent.lock_file import LockFile


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A directory with a path that is short enough for a socket."""
    with TemporaryDirectory(prefix="tg-") as folder:
        yield Path(folder)


def test_without_a_lock_there_is_no_server_to_wait_for(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.time, "sleep", lambda _: pytest.fail("waited for nobody"))
    with pytest.raises(calls.NoServer, match="expected a running server"):
        calls.check_running(run_dir)
    LockFile.acquire(run_dir / "lock").release()
    with pytest.raises(calls.NoServer, match="expected a running server"):
        calls.check_running(run_dir)


def test_a_supervisor_that_is_being_replaced_is_waited_for(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = LockFile.acquire(run_dir / "lock")
    with socket.socket(socket.AF_UNIX) as inbox:

        def replace(_: float) -> None:
            inbox.bind(str(run_dir / "supervisor"))
            inbox.listen()

        monkeypatch.setattr(calls.time, "sleep", replace)
        calls.check_running(run_dir)  # raises nothing, because the inbox is there after one wait
    lock.release()


def test_a_directory_without_room_for_a_socket_is_said(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise zmq.ZMQError(errno.ENOSPC)

    monkeypatch.setattr(calls, "ZmqMailbox", refuse)
    with socket.socket(socket.AF_UNIX) as inbox:
        inbox.bind(str(run_dir / "supervisor"))
        inbox.listen()
        with pytest.raises(calls.NoServer, match=r"expected room for a socket in .*, got No space left on device"):
            calls.ask_status(run_dir)


def test_where_there_is_no_server_those_of_other_ports_are_named(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run_dir))
    for name in ("tardigrade-8123", "tardigrade-9000", "tardigrade-tests"):
        (run_dir / name).mkdir()
    LockFile.acquire(run_dir / "tardigrade-9000" / "lock").release()  # a server that has ended
    held = [LockFile.acquire(run_dir / name / "lock") for name in ("tardigrade-8123", "tardigrade-tests")]
    with pytest.raises(SystemExit) as ended:
        reach(lambda: calls.check_running(run_dir / "tardigrade-8000"))
    assert ended.value.code == ExitCode.NO_SERVER
    assert "got none; servers of this user run on port 8123; --port or --run-dir names" in capsys.readouterr().err
    for lock in held:
        lock.release()
    with pytest.raises(SystemExit):
        reach(lambda: calls.check_running(run_dir / "tardigrade-8000"))
    assert "got none; --port or --run-dir names another server" in capsys.readouterr().err
