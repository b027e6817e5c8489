"""`supervisor restart`: what it says, and with which status it ends, over a server that a script plays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from messages.lifecycle.tree import RestartProgress, StatusReport, TreeState
from messages.outcomes import ExitCode
from supervisor.directories.run_dir_files import PID
from supervisor.operator import calls
from supervisor.restart import command


class ScriptedServer:
    """Answers each question about its state with the next progress of the script, then with the last one again."""

    def __init__(self, refusal: str, script: list[RestartProgress | calls.NoServer | None]) -> None:
        self._refusal, self._script = refusal, iter(script)
        self._last: RestartProgress | calls.NoServer | None = None
        self.asked: list[bytes] = []

    def status(self, _: Path) -> StatusReport:
        self._last = next(self._script, self._last)
        if isinstance(self._last, calls.NoServer):
            raise self._last
        return StatusReport(state=TreeState.SERVING, uptime_s=1.0, model="", url="", children=[], restart=self._last)

    def ask(self, _: Path, server: bytes) -> str:
        self.asked.append(server)
        return self._refusal


class Settings:
    """Stands for the server as it shall be."""

    def encoded(self) -> bytes:
        return b"settings"


class Clock:
    """Stands for the module `time`: a second passes at each look, and nobody sleeps."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        self._now_s += 1.0
        return self._now_s

    def sleep(self, _: float) -> None:
        pass


def restart(monkeypatch: pytest.MonkeyPatch, server: ScriptedServer, *flags: str, is_alive: bool = True) -> Result:
    monkeypatch.setattr(command, "time", Clock())
    monkeypatch.setattr(command, "_with_settings_of_now", lambda *_: Settings())
    monkeypatch.setattr(calls, "check_running", lambda _: None)
    monkeypatch.setattr(calls, "is_alive", lambda _: is_alive)
    monkeypatch.setattr(calls, "ask_status", server.status)
    monkeypatch.setattr(calls, "ask_restart", server.ask)
    return CliRunner().invoke(command.restart, ["--run-dir", "/run/none", *flags])


def test_it_follows_the_restart_until_every_group_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = RestartProgress(number=2, done=["of an earlier restart"], todo=[])
    half = RestartProgress(number=3, done=["supervisor"], todo=["gateway/0"])
    away = calls.NoServer("the supervisor is being replaced")
    server = ScriptedServer(
        "", [earlier, earlier, away, half, half, RestartProgress(number=3, done=["supervisor", "g"], todo=[])]
    )
    ended = restart(monkeypatch, server, "--json")
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(line["event"], line["what"]) for line in said] == [
        ("replaced", "supervisor"),
        ("replaced", "g"),
        ("done", "2 groups of processes"),
    ]
    assert (ended.exit_code, server.asked) == (ExitCode.DONE, [b"settings"])


def test_what_stops_half_way_names_what_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = RestartProgress(number=1, done=["supervisor"], todo=["gang 0", "gateway/0"], failure="gang 0: no memory")
    ended = restart(monkeypatch, ScriptedServer("", [None, stopped]))
    assert ended.exit_code == ExitCode.FAULT
    assert ended.stderr == "supervisor: gang 0: no memory; left as they were: gang 0, gateway/0\n"


def test_a_refusal_of_the_server_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = restart(monkeypatch, ScriptedServer("restart: expected one at a time", [None]))
    assert (ended.exit_code, ended.stderr) == (ExitCode.UNUSABLE, "supervisor: restart: expected one at a time\n")


def test_a_deadline_ends_the_command_and_not_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = RestartProgress(number=1, done=[], todo=["gateway/0"])
    ended = restart(monkeypatch, ScriptedServer("", [None, waiting]), "--deadline", "5")
    assert ended.exit_code == ExitCode.DEADLINE
    assert "the restart goes on after 5 s" in ended.stderr


def test_a_server_that_ends_meanwhile_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedServer("", [None, calls.NoServer("no server runs there")])
    ended = restart(monkeypatch, server, is_alive=False)
    assert ended.exit_code == ExitCode.NO_SERVER
    assert "no server runs there: it has ended during the restart, or somebody has removed its directory" in ended.stderr


def test_a_run_directory_that_was_removed_and_is_made_again_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    half, done = RestartProgress(number=1, done=["g"], todo=["h"]), RestartProgress(number=1, done=["g", "h"], todo=[])
    away = calls.NoServer("no server runs there")
    ended = restart(monkeypatch, ScriptedServer("", [None, half, away, away, done]), is_alive=False)
    assert (ended.exit_code, ended.stderr) == (ExitCode.DONE, "")


def test_relative_paths_begin_where_the_server_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    with command.in_directory_of(tmp_path):  # no process is known
        assert Path.cwd() == here
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=there) as server:
        (tmp_path / PID).write_text(str(server.pid))
        with command.in_directory_of(tmp_path):
            assert Path.cwd() == there
    assert Path.cwd() == here
