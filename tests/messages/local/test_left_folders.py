"""Which folders of private servers are removed: those that surely nobody uses."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from messages.local.left_folders import held_by_owner, remove_left

PREFIX, LATER_S = "tardigrade-llm-", 120.0


def removed(parent: Path, after_s: float = LATER_S) -> list[str]:
    """The names of the folders that are removed so many seconds from now."""
    return sorted(folder.name for folder in remove_left(parent, PREFIX, "run", time.time() + after_s))


def folder_in(parent: Path, name: str = "x", *, has_owner: bool = True) -> Path:
    """A folder with what a private server has in it."""
    folder = parent / f"{PREFIX}{name}"
    (folder / "run").mkdir(parents=True)
    (folder / "log").write_text("")
    if has_owner:
        os.close(held_by_owner(folder))
    return folder


def test_a_folder_that_nobody_uses_is_removed_and_a_new_one_stays(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    assert removed(tmp_path, after_s=0) == []
    assert removed(tmp_path) == [folder.name]
    assert not folder.exists()


def test_one_whose_guard_lives_stays(tmp_path: Path) -> None:
    folder = folder_in(tmp_path, has_owner=False)
    fd = held_by_owner(folder)
    guard = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(fd,))
    os.close(fd)
    assert removed(tmp_path) == []
    guard.kill()
    guard.communicate()
    assert removed(tmp_path) == [folder.name]


def test_one_whose_server_lives_stays(tmp_path: Path) -> None:
    """Its guard was killed, and it finishes its requests."""
    folder = folder_in(tmp_path)
    with (folder / "run" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert removed(tmp_path) == []
    assert removed(tmp_path) == [folder.name]


def test_one_with_a_socket_that_is_open_stays() -> None:
    """Actors may outlive their supervisor for a minute."""
    with TemporaryDirectory(prefix="tg-") as name, socket.socket(socket.AF_UNIX) as actor:
        folder = folder_in(Path(name))
        actor.bind(str(folder / "run" / "worker"))
        actor.listen()
        assert removed(Path(name)) == []
        actor.close()
        assert removed(Path(name)) == [folder.name]


def test_one_of_an_older_release_stays_while_its_server_may_be_starting(tmp_path: Path) -> None:
    folder = folder_in(tmp_path, has_owner=False)
    assert removed(tmp_path) == []
    assert removed(tmp_path, after_s=3700) == [folder.name]


def test_links_files_and_other_names_stay(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "target")
    (tmp_path / f"{PREFIX}file").write_text("")
    (tmp_path / "other").mkdir()
    assert removed(tmp_path, after_s=1e6) == []
