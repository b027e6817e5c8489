"""The systemd units against the supervisor that they start: statuses, time limits, options, what a process may do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from messages.outcomes import ExitCode
from supervisor.__main__ import main
from supervisor.config.server_config import SupervisorSettings

FOLDER = Path(__file__).parents[2] / "ops" / "systemd"
UNIT, TEMPLATE, SOCKET = (FOLDER / name for name in ("tardigrade.service", "tardigrade@.service", "tardigrade@.socket"))
MOST_EXPOSED = 2.5  # by systemd-analyze security, of 10
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


def test_two_servers_on_a_host_share_nothing_but_the_cache() -> None:
    """The lines of the template are those of the one service, with the port in each name that is a server's own."""
    lines = set(lines_of(TEXT)) ^ set(lines_of(TEMPLATE.read_text(encoding="utf-8")))
    own = [line for line in lines if "%i" in line]
    assert {line.partition("=")[0] for line in lines} == {line.partition("=")[0] for line in own}
    names = sorted(line.partition("=")[0] for line in own)
    assert names == ["Description", "Environment", "ExecStart", "RuntimeDirectory", "StateDirectory"]


def lines_of(text: str) -> list[str]:
    """The lines of a unit that are no comments."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_socket_has_the_port_by_which_commands_find_the_server() -> None:
    text = SOCKET.read_text(encoding="utf-8")
    assert re.findall(r"^ListenStream=.*:(.*)$", text, re.MULTILINE) == ["%i"]
    assert "--port %i " in TEMPLATE.read_text(encoding="utf-8")
    assert "Accept=" not in text, "one server for all connections"


def test_a_process_that_the_kernel_kills_for_memory_ends_no_other() -> None:
    assert value_of("OOMPolicy") == "continue"


def test_gpus_can_be_used_and_kernels_compiled() -> None:
    assert value_of("DeviceAllow") == "char-nvidia* rw"
    for key in ("MemoryDenyWriteExecute", "PrivateDevices", "RemoveIPC", "PrivateUsers"):
        assert f"\n{key}=" not in TEXT, key
    assert {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"} == set(value_of("RestrictAddressFamilies").split())


@pytest.fixture
def analyze() -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not on this machine")
    return program


def test_the_service_manager_understands_every_key(analyze: str, tmp_path: Path) -> None:
    units = [UNIT, tmp_path / "tardigrade@8001.service", tmp_path / "tardigrade@8001.socket"]
    for template, instance in zip((TEMPLATE, SOCKET), units[1:], strict=True):
        instance.write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
    run = subprocess.run([analyze, "verify", *map(str, units)], capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in run.stderr.splitlines() if "is not executable" not in line and "tardigrade" in line]
    assert complaints == []


def test_a_process_of_the_service_can_do_little_else(analyze: str) -> None:
    command = [analyze, "security", "--offline=true", "--no-pager", str(UNIT)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "--offline" in run.stderr:
        pytest.skip("this systemd-analyze looks at running services alone")
    (level,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", run.stdout)
    assert float(level) <= MOST_EXPOSED, run.stdout
