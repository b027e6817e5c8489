"""SIGHUP: what of a changed configuration counts at once, what is only said, and what a closed terminal means."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from messages.access.audit_log import AUDIT_FILE, AuditRecord, Door
from messages.errors import ConfigError
from messages.log_file.level_file import LEVEL_FILE
from supervisor.config.server_config import load_config
from supervisor.directories.run_dir_files import read_pid
from supervisor.directories.server import Server, StartInputs, as_json
from supervisor.operator.calls import ask_status
from supervisor.restart.hangup import ReloadOnHangup
from supervisor.tree import build_tree
from tests.support.real_server import WITHOUT_SPARES
from tests.support.supervisor.command_line import DEADLINE_S, call
from tests.support.supervisor.start_facts import FACTS


class Reloading:
    """SIGHUP to a server whose configuration is now `table`."""

    def __init__(
        self,
        folder: Path,
        table: dict[str, Any],
        refusals: Sequence[str] = (),
        error: Exception | None = None,
        keys: bool = False,
        looks: Sequence[bool] = (),
    ) -> None:
        """`keys`: the server asks for API keys. `refusals`: of the replacement of groups, one after the other; then it begins.
        `looks`: see `look`."""
        self.may_begin, self.later, left = True, list[Callable[[], None]](), list(refusals)
        before = [{"api_keys": keys}]
        config = load_config(None, before)
        run_dir: Any = SimpleNamespace(path=folder, server_path=folder / "server.json")
        origin = StartInputs({}, as_json(config) | {"log_level": "warning"}, FACTS.to_builtins())  # of "auto", by the start
        server = Server(build_tree(config, FACTS), run_dir, config.supervisor, "", "", "console", "warning", origin=origin)
        audit = folder / AUDIT_FILE
        log_file = self._reloaded_file(server, before)
        server = replace(server, model_name=FACTS.model_name, audit_file=str(audit), log_file=log_file)
        self.begun: list[tuple[Server, list[str]]] = []

        def configuration(_: dict[str, object]) -> Any:
            if error is not None:
                raise error
            return load_config(None, [*before, table])

        def begin(after: Server, titles: list[str]) -> str:
            self.begun.append((after, titles))
            return left.pop(0) if left else ""

        self.hangup = ReloadOnHangup(
            server, lambda: server.groups, dict, begin, False, configuration,
            may_begin=lambda: self.may_begin, later=lambda _, call: self.later.append(call),
        )  # fmt: skip
        with capture_logs() as self.lines:
            assert self.hangup.handle()
            self.look(*looks)
        self.hangup.audit.wait_written()
        [self.audited] = [msgspec.json.decode(line, type=AuditRecord) for line in audit.read_bytes().splitlines()]

    def look(self, *looks: bool) -> None:
        """What the reload that waits does at these looks: whether it may begin."""
        for self.may_begin in looks:
            assert self.hangup.handle(), "one more signal changes nothing"
            [call] = self.later
            self.later.clear()
            call()

    @staticmethod
    def _reloaded_file(server: Server, before: list[dict[str, Any]]) -> Any:
        from supervisor.restart.reload import reloaded

        return reloaded(server, load_config(None, before), {}).log_file

    @property
    def titles(self) -> list[str]:
        return [title for _, titles in self.begun for title in titles]


def test_settings_of_cheap_processes_count_at_once_and_the_others_are_named(tmp_path: Path) -> None:
    seen = Reloading(tmp_path, {"scheduler": {"policy": "fair"}, "worker": {"n_slots": 3}, "supervisor": {"drain_s": 9.0}})
    assert seen.titles == ["scheduler/0"]
    after, _ = seen.begun[0]
    before = {group.title: group for group in build_tree(load_config(None), FACTS)}
    assert [group.title for group in after.groups if group.children != before[group.title].children] == ["scheduler/0"]
    said = {line["event"]: line for line in seen.lines}
    warned = said["some changes need a rolling restart"]
    assert warned["groups"]
    assert all("gang" in title for title in warned["groups"])
    assert warned["own"] == ["settings"]
    assert seen.audited.parameters == {
        "changed": ["scheduler.policy", "supervisor.drain_s", "worker.n_slots"],
        "replaced": ["scheduler/0"],
        "needs_restart": [*warned["groups"], "settings"],
    }
    assert not (tmp_path / LEVEL_FILE).exists()


def test_changed_limits_of_tenants_count_at_once_and_are_in_the_audit_log(tmp_path: Path) -> None:
    seen = Reloading(tmp_path, {"tenants": {"acme": {"tokens_per_day": 123456}}}, keys=True)
    assert sorted(seen.titles) == ["accounts/0", "gateway/0"]
    line = seen.audited
    assert (line.door, line.action, line.result, line.role, line.user) == (Door.SIGNAL, "reload", "done", "operator", "")
    assert line.parameters["changed"] == ["tenants.acme.tokens_per_day"]
    assert "123456" not in (tmp_path / AUDIT_FILE).read_text(), "no values"


def test_the_log_level_counts_at_once(tmp_path: Path) -> None:
    seen = Reloading(tmp_path, {"log_level": "info"})
    assert seen.begun == []
    assert (tmp_path / LEVEL_FILE).read_text() == "info"
    assert [line["event"] for line in seen.lines] == ["configuration reloaded"]


@pytest.mark.parametrize(
    ("table", "options", "reason"),
    [
        ({"port": 8001}, {}, "port: expected 8000"),
        ({}, {"error": ConfigError("prot: unknown key; did you mean port?")}, "did you mean"),
        ({}, {"error": FileNotFoundError(2, "No such file")}, "No such file"),
    ],
)
def test_a_configuration_that_cannot_count_changes_nothing(tmp_path: Path, table: Any, options: Any, reason: str) -> None:
    seen = Reloading(tmp_path, table, **options)
    assert [line["event"] for line in seen.lines] == ["configuration not reloaded: the server goes on as it is"]
    assert reason in seen.lines[0]["reason"]
    assert not (tmp_path / "server.json").exists()
    assert (seen.audited.result, seen.audited.parameters) == ("refused", {})
    assert seen.audited.detail == seen.lines[0]["reason"].partition(": ")[0]


def test_a_reload_waits_until_it_is_possible(tmp_path: Path) -> None:
    """As after the death of a supervisor, while its children are adopted, or beside another reload."""
    refusals = ["got one that is degraded", "got one that is being restarted"]
    table = {"gateway": {"retention_s": 9.0}}
    seen = Reloading(tmp_path, table, refusals, looks=(False, True, False, False, True))
    assert seen.titles == ["gateway/0"] * 3
    waits, done = seen.lines
    assert (waits["event"], waits["reason"]) == ("the configuration will be reloaded as soon as that is possible", refusals[0])
    assert (done["event"], done["replaced"]) == ("configuration reloaded", ["gateway/0"])
    assert (seen.audited.result, seen.later) == ("done", [])


def test_a_closed_terminal_is_no_wish_for_a_reload(tmp_path: Path) -> None:
    server: Any = SimpleNamespace(audit_file="")
    assert not ReloadOnHangup(server, tuple, dict, lambda *_: "", is_in_terminal=True).handle()


def wait_for(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_without_a_terminal_reloads_and_goes_on(tmp_path: Path) -> None:
    run_dir, file = tmp_path / "d", tmp_path / "server.toml"
    file.write_text('log_level = "error"\n')
    flags = ["--model", "hash-chain", "--port", "0", "--run-dir", str(run_dir), "--config", str(file), *WITHOUT_SPARES]
    command = [sys.executable, "-m", "supervisor", "start", *flags]
    with (tmp_path / "out").open("w") as out:
        server = subprocess.Popen(command, stderr=out, start_new_session=True)
    try:
        wait_for(lambda: "Tardigrade serves" in (tmp_path / "out").read_text())
        file.write_text('log_level = "info"\n[scheduler]\npolicy = "fair"\n')
        server.send_signal(signal.SIGHUP)

        def incarnations() -> dict[str, int]:
            return {child.name: child.incarnation for child in ask_status(run_dir, DEADLINE_S).children}

        wait_for(lambda: incarnations()["scheduler/0"] == 2)
        wait_for(lambda: "group replaced" in call("logs", "--run-dir", str(run_dir)).stdout)
        assert sum(incarnations().values()) == len(incarnations()) + 1, "nobody else was replaced"
        os.kill(read_pid(run_dir) or 0, signal.SIGKILL)
        wait_for(lambda: "policy_fair" in str(ask_status(run_dir, DEADLINE_S).children))
        wait_for(lambda: "[info" in (tmp_path / "out").read_text())  # standard error has the new level
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0
    finally:
        server.kill()
        server.wait(DEADLINE_S)
