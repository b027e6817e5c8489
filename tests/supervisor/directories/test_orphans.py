"""What a killed supervisor left behind is ended, and nobody else is."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from supervisor.directories.orphans import kill_orphans
from supervisor.directories.register import ProcessRegister, start_ticks_of
from supervisor.directories.run_dir import RunDir

DEADLINE_S = 60.0


def test_a_child_that_is_left_is_killed_and_proven_dead(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    ProcessRegister(tmp_path / "c.json").add("worker/0.0", sleeper.pid)
    found, alive = kill_orphans(tmp_path / "c.json", DEADLINE_S)
    assert [(child.name, child.pid) for child in found] == [("worker/0.0", sleeper.pid)]
    assert alive == []
    assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL
    assert kill_orphans(tmp_path / "c.json", DEADLINE_S) == ([], [])


@pytest.mark.parametrize("change", [{"start_ticks": 7}, {"boot": "another"}])
def test_another_process_with_the_same_id_is_left_alone(tmp_path: Path, sleeper: subprocess.Popen[bytes], change: dict) -> None:
    path = tmp_path / "c.json"
    ProcessRegister(path).add("worker/0.0", sleeper.pid)
    page = msgspec.json.decode(path.read_bytes())
    page["boot"] = change.get("boot", page["boot"])
    page["children"][0]["start_ticks"] = change.get("start_ticks", page["children"][0]["start_ticks"])
    path.write_bytes(msgspec.json.encode(page))
    assert kill_orphans(path, DEADLINE_S) == ([], [])
    assert sleeper.poll() is None


def refuse_pidfds(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The kernel answers so from now on."""

    def refuse(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)


def test_without_pidfds_it_is_killed_and_looked_at_until_it_is_gone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ProcessRegister(tmp_path / "c.json").add("worker/0.0", sleeper.pid)
    refuse_pidfds(monkeypatch, errno.ENOSYS)
    found, alive = kill_orphans(tmp_path / "c.json", DEADLINE_S)
    assert [child.pid for child in found] == [sleeper.pid]
    assert alive == []
    assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL
    assert kill_orphans(tmp_path / "c.json", DEADLINE_S) == ([], [])


def test_without_pidfds_another_process_with_the_same_id_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    ProcessRegister(path).add("worker/0.0", sleeper.pid)
    page = msgspec.json.decode(path.read_bytes())
    page["children"][0]["start_ticks"] -= 1
    path.write_bytes(msgspec.json.encode(page))
    refuse_pidfds(monkeypatch, errno.ENOSYS)
    assert kill_orphans(path, DEADLINE_S) == ([], [])
    assert sleeper.poll() is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EPERM])
def test_what_the_kernel_does_not_tell_counts_as_alive_and_is_said(
    number: int,
    tmp_path: Path,
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ProcessRegister(tmp_path / "c.json").add("worker/0.0", sleeper.pid)
    refuse_pidfds(monkeypatch, number)
    found, alive = kill_orphans(tmp_path / "c.json", 0.05)
    assert [child.pid for child in found] == [child.pid for child in alive] == [sleeper.pid]
    said = capsys.readouterr()
    assert os.strerror(number) in said.out + said.err


def test_the_register_forgets_the_dead(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = tmp_path / "c.json"
    register = ProcessRegister(path)
    gone = subprocess.Popen(["/bin/sleep", "600"])
    register.add("gateway/0", gone.pid)
    gone.kill()
    gone.wait(DEADLINE_S)
    register.add("worker/0.0", sleeper.pid)
    assert [child["pid"] for child in msgspec.json.decode(path.read_bytes())["children"]] == [sleeper.pid]


@pytest.mark.parametrize("text", [b"", b"{", b'{"boot": 1}', b"[]"])
def test_a_torn_register_is_no_register(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c.json").write_bytes(text)
    assert kill_orphans(tmp_path / "c.json", DEADLINE_S) == ([], [])
    assert kill_orphans(tmp_path / "none.json", DEADLINE_S) == ([], [])


def test_a_run_directory_is_taken_over_only_after_the_deaths(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d"
    RunDir.acquire(path).release()
    ProcessRegister(path / "children.json").add("gateway/0", sleeper.pid)
    (path / "supervisor.pid").write_text("12345")
    run_dir = RunDir.acquire(path)
    assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL
    said = capsys.readouterr()
    assert f"gateway/0 (pid {sleeper.pid})" in said.out + said.err
    assert not (path / "children.json").exists()
    run_dir.release()


def test_start_times_are_those_of_living_processes() -> None:
    assert start_ticks_of(os.getpid())
    zombie = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert start_ticks_of(zombie.pid) is None
    zombie.wait(DEADLINE_S)
    assert start_ticks_of(zombie.pid) is None


def test_a_child_that_listens_is_found_without_a_register(tmp_path: Path) -> None:
    """Somebody has written something else over the register."""
    (tmp_path / "c.json").write_text("garbage")
    code = "import socket, sys, time; s = socket.socket(1); s.bind(sys.argv[3]); s.listen(); print(1); time.sleep(600)"
    inbox = str(tmp_path / "gateway-0.1")
    argv = [sys.executable, "-Suc", code, "supervisor.children.entrypoint", "gateway/0", inbox]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        found, alive = kill_orphans(tmp_path / "c.json", DEADLINE_S)
        assert [(child.name, child.pid) for child in found] == [("gateway/0", process.pid)]
        assert alive == []
        assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_who_listens_and_is_no_child_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "gateway-0.1"))
        listener.listen()
        assert kill_orphans(tmp_path / "c.json", DEADLINE_S) == ([], [])
