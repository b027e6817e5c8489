"""The service unit against the supervisor that it starts: statuses, time limits, options."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from messages.outcomes import ExitCode
from supervisor.__main__ import main
from supervisor.config.server_config import SupervisorSettings

UNIT = Path(__file__).parents[2] / "ops" / "systemd" / "tardigrade.service"
TEXT = UNIT.read_text(encoding="utf-8")


def value_of(key: str) -> str:
    """The one value of a key."""
    (value,) = re.findall(rf"^{key}=(.*)$", TEXT, re.MULTILINE)
    return value


def test_a_configuration_that_cannot_be_used_is_not_tried_again() -> None:
    assert value_of("Restart") == "on-failure"
    assert ExitCode.UNUSABLE in map(int, value_of("RestartPreventExitStatus").split())
    assert "ExecStartPre=" not in TEXT, "its exit status prevents no restart: systemd looks at that of the main process"


def test_a_server_that_has_lost_its_first_parent_goes_on_and_an_orderly_end_stays_one() -> None:
    """The service manager would kill the rest, and remember the death as the reason to start the service again."""
    assert value_of("ExitType") == "cgroup"
    assert value_of("NotifyAccess") == "all", "another process says that it is the main one now"
    assert {0, ExitCode.DEADLINE} <= set(map(int, value_of("RestartPreventExitStatus").split()))
    assert int(value_of("SuccessExitStatus")) == ExitCode.DEADLINE


def test_the_service_manager_waits_longer_than_an_orderly_end_takes() -> None:
    settings = SupervisorSettings()
    groups = 5  # of a tree with one replica
    assert float(value_of("TimeoutStopSec")) > settings.drain_s + groups * settings.stop_s


def test_the_command_exists_with_its_options() -> None:
    _, name, *options = value_of("ExecStart").split()
    known = {option for parameter in main.commands[name].params for option in parameter.opts}
    assert {option for option in options if option.startswith("--")} <= known


def test_the_service_manager_understands_every_key() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on this machine")
    run = subprocess.run([analyze, "verify", str(UNIT)], capture_output=True, text=True, timeout=30, check=False)
    complaints = [line for line in run.stderr.splitlines() if "is not executable" not in line and "tardigrade" in line]
    assert complaints == []
