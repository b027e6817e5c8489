"""The run directory: private, held by one server, cleared of what an earlier one left."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from messages.errors import ConfigError
from supervisor.directories import orphans
from supervisor.directories import run_dir as run_dir_module
from supervisor.directories.rendezvous import Incarnations, open_gang_dir, remove_gang_dir
from supervisor.directories.run_dir import RunDir, RunDirTaken
from supervisor.directories.run_dir_files import read_pid
from supervisor.directories.state_dir import make_private
from supervisor.parent.lock_file import LockFile


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place whose path is short enough for sockets."""
    return tmp_path_factory.mktemp("run") / "d"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a killed server to end."""
    monkeypatch.setattr(run_dir_module, "_DYING_S", 0.0)


def test_it_is_private(path: Path) -> None:
    run_dir = RunDir.acquire(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert read_pid(path) == os.getpid()
    run_dir.release()
    assert read_pid(path) is None


def test_one_for_a_random_port_leaves_nothing(path: Path) -> None:
    RunDir.acquire(path).release(is_temporary=True)
    assert not path.exists()


@pytest.mark.usefixtures("impatient")
def test_a_second_server_is_told_who_holds_it(path: Path) -> None:
    run_dir = RunDir.acquire(path)
    with pytest.raises(ConfigError, match=rf"expected no other server in .* \(pid {os.getpid()}\)"):
        RunDir.acquire(path)
    run_dir.release()
    RunDir.acquire(path).release()


@pytest.mark.parametrize(("is_listened", "n_tries"), [(False, 3), (True, 1)])
def test_a_start_waits_until_a_killed_server_has_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_listened: bool, n_tries: int
) -> None:
    tries: list[float] = []

    def acquire(lock: Path, timeout_s: float) -> LockFile:
        tries.append(timeout_s)
        if len(tries) < 3:
            raise BlockingIOError
        return LockFile(os.open(lock, os.O_RDWR | os.O_CREAT))

    monkeypatch.setattr(run_dir_module.LockFile, "acquire", acquire)
    pids = iter([os.getpid()] if is_listened else [])
    monkeypatch.setattr(run_dir_module, "supervisor_at", lambda path: next(pids, None))
    with pytest.raises(RunDirTaken) if is_listened else contextlib.nullcontext():
        RunDir.lock(path).release()
    assert len(tries) == n_tries


def test_a_server_whose_lock_was_removed_is_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = RunDir.acquire(path)
    before = sorted(entry.name for entry in path.iterdir())
    (path / "lock").unlink()
    monkeypatch.setattr(orphans, "_command_line", lambda pid: ["python", "-m", "supervisor", "start"])
    with socket.socket(socket.AF_UNIX) as inbox:
        inbox.bind(str(path / "supervisor"))
        inbox.listen()
        with pytest.raises(RunDirTaken, match=rf"pid {os.getpid()}"):
            RunDir.lock(path)
    assert sorted(entry.name for entry in path.iterdir()) == sorted([*before, "supervisor"])
    first.release()


def test_nothing_is_touched_before_it_begins(path: Path) -> None:
    path.mkdir(mode=0o700)
    left = {name: (path / name).write_text(name) for name in ("server.json", "children.json", "supervisor.pid", "end.json")}
    RunDir.lock(path).release()
    assert {entry.name for entry in path.iterdir()} == {*left, "lock"}


def test_a_directory_that_others_can_read_is_refused(path: Path) -> None:
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    with pytest.raises(ConfigError, match=r"expected mode 0700 on .*, got 0755; chmod 700 /"):
        RunDir.acquire(path)


def test_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"expected a directory at .*, got something else"):
        make_private(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, 65_534, 65_534)
    with pytest.raises(ConfigError, match=rf"to belong to user {os.getuid()}, got user 65534"):
        make_private(path)


def test_a_path_that_is_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run_dir: expected a path of at most \d+ bytes"):
        RunDir.acquire(tmp_path / ("x" * 90))


def test_sockets_and_gang_directories_of_an_earlier_server_are_cleared_and_journals_stay(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "gang-0.3").mkdir()
    (path / "gang-0.3" / "store").write_text("x")
    (path / "journal-0").write_text("precious")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path / "gateway-0.1"))
    run_dir = RunDir.acquire(path)
    left = {entry.name for entry in path.iterdir()}
    assert left == {"lock", "supervisor.pid", "journal-0"}
    run_dir.release()


@pytest.mark.usefixtures("impatient")
def test_a_directory_that_was_removed_is_made_and_locked_again(path: Path) -> None:
    run_dir = RunDir.acquire(path)
    kept: list[int] = []
    run_dir.keep_lock = lambda fd: kept.append(os.fstat(fd).st_ino)
    run_dir.make_again()
    shutil.rmtree(path)
    for _ in range(2):
        run_dir.make_again()
    assert kept == [(path / "lock").stat().st_ino], "the next supervisor has the lock that others see"
    assert {entry.name for entry in path.iterdir()} == {"lock", "supervisor.pid"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    with pytest.raises(RunDirTaken):
        RunDir.acquire(path)
    run_dir.release()
    RunDir.acquire(path).release()


@pytest.mark.usefixtures("impatient")
def test_the_next_supervisor_makes_a_directory_that_was_removed(path: Path) -> None:
    first = RunDir.acquire(path)
    shutil.rmtree(path)
    run_dir = RunDir.resume(path, os.dup(first.lock_fd))
    assert read_pid(path) == os.getpid()
    with pytest.raises(RunDirTaken):
        RunDir.acquire(path)
    run_dir.release()
    first.release()


def test_every_incarnation_has_its_own_endpoint(path: Path) -> None:
    run_dir = RunDir.acquire(path)
    assert run_dir.endpoint("worker/0.1", 3) == f"ipc://{path}/worker-0.1.3"
    run_dir.remove_socket("worker/0.1", 3)
    run_dir.release()


def test_incarnations_grow_across_restarts_of_the_server(tmp_path: Path) -> None:
    first = Incarnations(tmp_path / "incarnations.json")
    assert [first.next("gateway/0"), first.next("gateway/0"), first.next("scheduler/0")] == [1, 2, 1]
    second = Incarnations(tmp_path / "incarnations.json")
    assert second.next("gateway/0") == 3


def test_a_gang_shares_one_number_above_all_of_its_incarnations(tmp_path: Path) -> None:
    incarnations = Incarnations(tmp_path / "incarnations.json")
    incarnations.next("worker/0.0")
    assert incarnations.next("worker/0.0", "worker/0.1") == 2
    assert incarnations.next("worker/0.1") == 3


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gateway/0": "x"}'])
def test_a_torn_file_of_incarnations_starts_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "incarnations.json"
    path.write_text(text)
    assert Incarnations(path).next("gateway/0") == 1


def test_a_gang_directory_is_private_and_leaves_the_others_alone(tmp_path: Path) -> None:
    places = [(0, "a", 1), (0, "b", 1), (0, "a", 2), (1, "a", 1)]
    paths = [Path(open_gang_dir(tmp_path, *place)) for place in places]
    assert [path.name for path in paths] == ["gang-0.1", "gang-0b.1", "gang-0.2", "gang-1.1"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in paths)


def test_a_gang_directory_is_never_used_twice(tmp_path: Path) -> None:
    open_gang_dir(tmp_path, 0, "a", 1)
    with pytest.raises(FileExistsError):
        open_gang_dir(tmp_path, 0, "a", 1)


def test_only_the_directory_of_the_dead_gang_is_removed(tmp_path: Path) -> None:
    dead, alive = (open_gang_dir(tmp_path, 0, seat, 1) for seat in "ab")
    (Path(dead) / "store").write_text("x")
    remove_gang_dir(dead)
    assert [path.name for path in tmp_path.iterdir()] == [Path(alive).name]
    remove_gang_dir(dead)  # a second time: nothing happens
