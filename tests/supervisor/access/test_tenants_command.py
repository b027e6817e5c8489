"""`supervisor tenants`: what it prints, what it keeps, and how it ends."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from messages.access.api_key import key_id_of
from messages.access.audit_log import AUDIT_FILE, AuditRecord
from messages.access.key_file import KEY_FILE
from messages.access.tenant_file import TENANT_FILE, read_tenants
from messages.access.tenant_policy import TenantPolicy
from supervisor.__main__ import main
from supervisor.access.place import state_dir_for
from supervisor.directories.run_dir_files import SERVER


def run(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(main, ["tenants", *arguments, "--state-dir", str(folder)])


def test_a_tenant_is_set_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    done = run(tmp_path, "set", "acme", "--weight", "2", "--requests-per-min", "60")
    assert done.stdout == "acme: weight 2, requests_per_min 60, all else by default\n"
    assert done.stderr == f"No key belongs to acme yet: supervisor keys add --tenant acme --state-dir {tmp_path}\n"
    assert read_tenants(tmp_path / TENANT_FILE) == {"acme": TenantPolicy(weight=2.0, requests_per_min=60)}
    CliRunner().invoke(main, ["keys", "add", "--tenant", "acme", "--state-dir", str(tmp_path)])
    done = run(tmp_path, "set", "acme", "--priority", "-5")
    assert done.stdout == "acme: priority -5, all else by default\n"
    assert done.stderr == "Not given, so no longer set: weight 2, requests_per_min 60\n"
    assert run(tmp_path, "set", "acme", "--priority", "-5").stderr == ""
    listed = run(tmp_path, "list").output.splitlines()
    assert listed[0].split()[:4] == ["tenant", "weight", "priority", "page_share"]
    assert listed[1].split() == ["acme", "1", "-5", "1", "1", "-", "-", "-", "-"]  # a limit of 0 is none
    assert json.loads(run(tmp_path, "list", "--json").output)["acme"]["priority"] == -5
    done = run(tmp_path, "remove", "acme")
    keys = f"supervisor keys list --state-dir {tmp_path}"
    assert (done.exit_code, done.stdout) == (0, f"the policy of acme is removed; its keys still count ({keys})\n")
    assert read_tenants(tmp_path / TENANT_FILE) == {}


def test_a_tenant_whose_keys_are_all_revoked_has_none(tmp_path: Path) -> None:
    key = CliRunner().invoke(main, ["keys", "add", "--tenant", "acme", "--state-dir", str(tmp_path)]).stdout
    key_id = key_id_of(key.strip())
    assert CliRunner().invoke(main, ["keys", "revoke", key_id, "--state-dir", str(tmp_path)]).exit_code == 0
    said = run(tmp_path, "set", "acme").stderr
    assert said == f"No key belongs to acme yet: supervisor keys add --tenant acme --state-dir {tmp_path}\n"


def test_the_command_for_a_key_is_about_the_same_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("supervisor.access.place.run_dir_with", lambda _: tmp_path / "none")
    said = CliRunner().invoke(main, ["tenants", "set", "acme", "--port", "8123"]).stderr
    assert said == "No key belongs to acme yet: supervisor keys add --tenant acme --port 8123\n"
    said = CliRunner().invoke(main, ["tenants", "set", "acme", "--port", "8000"]).stderr
    assert said == "No key belongs to acme yet: supervisor keys add --tenant acme\n"


def test_a_state_directory_that_cannot_be_made_is_told_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in (["tenants", "set", "acme"], ["keys", "add", "--tenant", "acme"]):
        done = CliRunner().invoke(main, [*command, "--state-dir", str(tmp_path / "file" / "state")])
        assert done.exit_code == 2
        assert done.stderr.startswith("supervisor: state_dir: expected a directory where ")
        assert done.stderr.endswith("got Not a directory; --state-dir names another one\n")


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another directory would be that of another server, in which a revoked key would mean nothing."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    key = CliRunner().invoke(main, ["keys", "add", "--tenant", "acme", "--state-dir", str(tmp_path)]).stdout
    monkeypatch.setattr("messages.access.tenant_file.replace_private", full)
    monkeypatch.setattr("messages.access.key_file.replace_private", full)
    for command, name in (["tenants", "set", "acme"], TENANT_FILE), (["keys", "revoke", key_id_of(key.strip())], KEY_FILE):
        done = CliRunner().invoke(main, [*command, "--state-dir", str(tmp_path)])
        assert done.exit_code == 2
        what = (
            f"{tmp_path / name} cannot be written: No space left on device; nothing has changed. Free its disk, and ask again"
        )
        assert done.stderr == f"supervisor: {what}\n"


def test_a_running_server_is_followed_to_its_own_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / SERVER).write_text(json.dumps({"keys_dir": str(tmp_path / "state")}))
    monkeypatch.setattr("supervisor.access.place.run_dir_with", lambda _: tmp_path / "run")
    assert state_dir_for(8000, None) == tmp_path / "state"
    assert state_dir_for(8000, tmp_path) == tmp_path
    (tmp_path / "run" / SERVER).write_text(
        json.dumps({"log_file": {"path": str(tmp_path / "b" / "server.log"), "most_bytes": 1}})
    )
    assert state_dir_for(8000, None) == tmp_path / "b", "without keys it has a log file"
    monkeypatch.setattr("supervisor.access.place.run_dir_with", lambda _: tmp_path / "none")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "usual"))
    assert state_dir_for(8000, None) == tmp_path / "usual" / "tardigrade" / "8000"


@pytest.mark.parametrize("asks_keys", [False, True])
def test_who_makes_keys_for_a_server_that_asks_for_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asks_keys: bool
) -> None:
    """Otherwise the server would be taken for one that is closed."""
    state = tmp_path / "state"
    log_file = {"path": str(state / "server.log"), "most_bytes": 1}
    (tmp_path / SERVER).write_text(json.dumps({"log_file": log_file, "keys_dir": str(state) if asks_keys else ""}))
    monkeypatch.setattr("supervisor.access.place.run_dir_with", lambda _: tmp_path)
    for command in (["keys", "add", "--tenant", "acme"], ["tenants", "set", "acme"]):
        said = CliRunner().invoke(main, command).stderr
        assert ("The server that runs now asks for no API keys" in said) is not asks_keys
        elsewhere = CliRunner().invoke(main, [*command, "--state-dir", str(tmp_path / "other")]).stderr
        assert "asks for no" not in elsewhere, "that is another server, which does not run"


def test_every_key_of_a_policy_has_a_flag(tmp_path: Path) -> None:
    flags = [part for name in TenantPolicy.__struct_fields__ for part in (f"--{name.replace('_', '-')}", "1")]
    assert run(tmp_path, "set", "acme", *flags).exit_code == 0


def test_changes_have_lines_in_the_audit_log(tmp_path: Path) -> None:
    run(tmp_path, "set", "acme", "--weight", "2")
    run(tmp_path, "remove", "acme")
    lines = [msgspec.json.decode(line, type=AuditRecord) for line in (tmp_path / AUDIT_FILE).read_bytes().splitlines()]
    assert [(one.action, one.parameters) for one in lines] == [
        ("tenants set", {"tenant": "acme", "weight": 2.0}),
        ("tenants remove", {"tenant": "acme"}),
    ]


def test_wrong_values_and_files_are_refused(tmp_path: Path) -> None:
    for arguments, said in (
        (("set", "a b"), "tenants: expected a name of 1 to 64 letters, digits, dots, hyphens or underscores, got 'a b'"),
        (("set", "a", "--weight", "0"), "tenants.a.weight: expected a number > 0.0, got 0.0"),
        (("set", "a", "--tokens-per-day", "-1"), "tenants.a.tokens_per_day: expected a whole number >= 0, got -1"),
        (("remove", "a"), "tenant: expected one that was set here, got a; supervisor tenants list shows them"),
    ):
        bad = run(tmp_path, *arguments)
        assert (bad.exit_code, bad.stderr) == (2, f"supervisor: {said}\n")
    (tmp_path / TENANT_FILE).write_text("{")
    for arguments in (("list",), ("set", "a"), ("remove", "a")):
        bad = run(tmp_path, *arguments)
        assert (bad.exit_code, "expected a file of tenants" in bad.output) == (2, True)
