"""Tenants of a configuration to whom no key belongs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from structlog.testing import capture_logs

from messages.access.api_key import Role, new_key
from messages.access.key_file import KEY_FILE, change_keys
from supervisor.config.tenant_keys import warn_of_tenants_without_key, without_key


def test_tenants_without_a_key_that_can_be_used_are_named(tmp_path: Path) -> None:
    assert without_key(["b", "default", "a"], tmp_path) == ["a", "b"]
    _, mine = new_key("a", Role.USER, 1.0)
    change_keys(tmp_path / KEY_FILE, lambda keys: [mine])
    with capture_logs() as lines:
        warn_of_tenants_without_key(["a", "default", "b"], tmp_path)
        warn_of_tenants_without_key(["a"], tmp_path)
    assert [(line["log_level"], line["tenants"]) for line in lines] == [("warning", "b")]


def test_nothing_is_said_of_keys_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("damaged")
    assert without_key(["a"], tmp_path) == []


def test_check_config_names_tenants_without_a_key(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text("api_keys = true\n[tenants.default]\n[tenants.team-a]\nweight = 2\n[tenants.taem-b]\nweight = 2\n")
    for arguments in (["keys", "add", "--tenant", "team-a"], ["check-config", str(path)]):
        command = [sys.executable, "-m", "supervisor", *arguments, "--state-dir", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "No key belongs to taem-b yet: " in done.stderr
    assert sorted(json.loads(done.stdout)["tenants"]) == ["default", "taem-b", "team-a"]
