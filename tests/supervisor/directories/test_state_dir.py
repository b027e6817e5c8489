"""The journals belong to one server at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from messages.errors import ConfigError
from supervisor.directories.run_dir import RunDir
from supervisor.directories.state_dir import can_be_made, default_state_dir, hold_state_dir

DEADLINE_S = 60.0


def test_a_second_holder_is_told_who_holds_it(tmp_path: Path) -> None:
    with hold_state_dir(tmp_path / "s") as held:
        assert held.path == tmp_path / "s"
        with (
            pytest.raises(ConfigError, match=rf"^state_dir: expected no other server .* \(pid {os.getpid()}\)"),
            hold_state_dir(tmp_path / "s"),
        ):
            pass
    with hold_state_dir(tmp_path / "s"):
        pass


def test_a_directory_that_was_removed_is_made_and_locked_again(tmp_path: Path) -> None:
    kept: list[int] = []
    with hold_state_dir(tmp_path / "s", kept.append) as held:
        held.make_again()
        for removed in ("directory", "lock"):
            if removed == "directory":
                shutil.rmtree(held.path)
            else:
                (held.path / "journals.lock").unlink()
            held.make_again()
            assert held.path.stat().st_mode & 0o777 == 0o700
            with pytest.raises(ConfigError, match=rf"\(pid {os.getpid()}\)"), hold_state_dir(held.path):
                pass
        assert len(kept) == 3, "the next supervisor holds the newest lock"
    with hold_state_dir(tmp_path / "s"):
        pass


def test_a_directory_that_another_server_has_locked_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    with hold_state_dir(tmp_path / "s") as first:
        shutil.rmtree(first.path)
        with hold_state_dir(tmp_path / "s") as second:
            first.make_again()
            shutil.rmtree(first.path)
            second.make_again()
            first.make_again()
            with pytest.raises(ConfigError), hold_state_dir(tmp_path / "s"):
                pass


def test_it_goes_with_a_killed_holder_and_not_to_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, pathlib, supervisor.directories.state_dir as s\n"
        "with s.hold_state_dir(pathlib.Path(sys.argv[1])):\n"
        "    child = subprocess.Popen(['/bin/sleep', '600'], stdout=subprocess.DEVNULL)\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "s")]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None
    assert holder.stdout is not None
    child_pid = int(holder.stdout.readline())
    try:
        with (
            pytest.raises(ConfigError, match=rf"\(pid {holder.pid}\)"),
            hold_state_dir(tmp_path / "s"),
        ):
            pass
        holder.kill()
        holder.wait(DEADLINE_S)
        with hold_state_dir(tmp_path / "s"):
            os.kill(child_pid, 0)  # it still lives
    finally:
        holder.kill()
        holder.wait(DEADLINE_S)
        holder.stdin.close()
        holder.stdout.close()
        os.kill(child_pid, 9)


def test_a_run_directory_may_be_the_state_directory_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    run_dir = RunDir.acquire(tmp_path_factory.mktemp("run") / "d")
    with hold_state_dir(run_dir.path) as held:
        assert held.path == run_dir.path
    run_dir.release()


def test_one_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(0o755)
    with pytest.raises(ConfigError, match=r"^state_dir: expected mode 0700"), hold_state_dir(tmp_path / "s"):
        pass


def test_the_default_survives_a_reboot(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert default_state_dir(8000, {}, home) == home / ".local/state/tardigrade/8000"
    assert default_state_dir(81, {"XDG_STATE_HOME": "/var/x"}, home) == Path("/var/x/tardigrade/81")
    assert default_state_dir(81, {"XDG_STATE_HOME": "relative"}, home) == home / ".local/state/tardigrade/81"


def test_the_folders_of_a_default_are_made_for_this_user_alone(tmp_path: Path) -> None:
    found = default_state_dir(8000, {}, tmp_path / "home")
    assert can_be_made(found)
    assert can_be_made(found), "once more"
    assert all(one.stat().st_mode & 0o777 == 0o700 for one in (found, found.parent)), "the journals hold prompts"
    (tmp_path / "file").touch()
    assert not can_be_made(tmp_path / "file" / "tardigrade" / "8000")
