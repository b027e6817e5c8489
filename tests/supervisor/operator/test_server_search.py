"""How operators' commands find a server by its port, wherever its run directory is."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from messages.outcomes import ExitCode
from supervisor.directories.run_dir_files import SERVER
from supervisor.operator import calls
from supervisor.operator.command_line import reach, run_dir_for
from supervisor.operator.server_search import served_ports
from supervisor.parent.lock_file import LockFile

FREE, OTHER = 1, 2  # ports that no server of a test listens on


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the run directories of a test are; its path is short enough for sockets."""
    with TemporaryDirectory(prefix="tg-") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """What servers hold until the end of the test."""
    with ExitStack() as stack:
        yield stack


def serve(held: ExitStack, run_dir: Path, port: int, name: str = "supervisor") -> Path:
    """Let a server run in a directory, with the lock and one socket of a real one."""
    run_dir.mkdir()
    held.callback(LockFile.acquire(run_dir / "lock").release)
    inbox = held.enter_context(socket.socket(socket.AF_UNIX))
    inbox.bind(str(run_dir / name))
    inbox.listen()
    (run_dir / SERVER).write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "groups": []}))
    return run_dir


@pytest.mark.parametrize("socket_name", ["supervisor", "custodian.sock"])  # the second one alone while a supervisor is replaced
def test_a_server_with_a_run_directory_of_its_own_is_found_by_its_port(folder: Path, held: ExitStack, socket_name: str) -> None:
    run_dir = serve(held, folder / "mine here", FREE, socket_name)
    assert run_dir_for(FREE, None) == run_dir
    assert run_dir_for(FREE, folder / "named") == folder / "named"
    assert run_dir_for(OTHER, None) == folder / f"tardigrade-{OTHER}"


def test_the_server_in_the_usual_place_comes_first(folder: Path, held: ExitStack) -> None:
    serve(held, folder / "a", FREE)
    usual = serve(held, folder / f"tardigrade-{FREE}", FREE)
    assert run_dir_for(FREE, None) == usual


def test_one_that_has_ended_or_cannot_be_read_is_not_found(folder: Path, held: ExitStack) -> None:
    with ExitStack() as ended:
        serve(ended, folder / "ended", FREE)
    (serve(held, folder / "broken", FREE) / SERVER).write_text("{")
    assert run_dir_for(FREE, None) == folder / f"tardigrade-{FREE}"


def test_private_servers_are_not_named(folder: Path, held: ExitStack) -> None:
    """They end with the program that has started them; who knows the port still finds one."""
    private = folder / "tardigrade-llm-x"
    private.mkdir()
    run_dir = serve(held, private / "run", OTHER)
    assert OTHER not in served_ports()
    assert run_dir_for(OTHER, None) == run_dir
    serve(held, folder / "starting", 0)
    assert 0 not in served_ports(), "it has no port yet"


def test_where_there_is_no_server_those_of_other_ports_are_named(
    folder: Path, held: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(held, folder / "mine", FREE)
    assert FREE in served_ports()
    with pytest.raises(SystemExit) as ended:
        reach(lambda: calls.check_running(run_dir_for(OTHER, None)))
    assert ended.value.code == ExitCode.NO_SERVER
    assert f"got none; servers of this user run on port {FREE}" in capsys.readouterr().err
