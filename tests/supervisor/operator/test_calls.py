"""How operators' commands find a server: one whose supervisor is being replaced is waited for."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zmq

from messages.run_dir import run_dir_of
from supervisor.operator import calls
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


def test_a_port_that_another_program_serves_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(calls.NoServer, match=rf"got none; .*another program, listens on port {port}$"):
            calls.check_running(run_dir_of(port))
    with pytest.raises(calls.NoServer, match=r"got none$"):
        calls.check_running(run_dir_of(port))


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
