"""The examples of docs/operations.md about the first hour, policies and tenants are what they say they are."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from actors.gateway.bodies.schema import CompletionBody
from actors.scheduler.sequences.policy import LateRequests, PolicyName
from messages.access.api_key import Role, is_key_of
from messages.access.key_file import KEY_FILE, read_keys
from messages.access.tenant_file import TENANT_FILE, read_tenants
from messages.access.tenant_policy import TenantPolicy, policy_in
from ops.doc_tables import REPO
from supervisor.__main__ import main, start
from supervisor.config.server_config import load_config
from supervisor.operator.command_line import config_of
from tests.support.real_server import real_server
from tests.support.waiting import DEADLINE_S

_TEXT = (REPO / "docs" / "operations.md").read_text(encoding="utf-8")
_FIRST_HOUR = re.findall(r"```sh\n(.*?)```", _TEXT.partition("## A first hour")[2].partition("\n## ")[0], re.DOTALL)
_OF_POLICIES = re.findall(r"```sh\n(.*?)```", _TEXT.partition("## A policy for")[2].partition("\n## ")[0], re.DOTALL)
_BLOCKS = re.findall(r"```(toml|sh)\n(.*?)```", _TEXT.partition("## Keys, tenants and limits")[2], re.DOTALL)


def words(text: str) -> list[list[str]]:
    """The commands of a block, without its comments."""
    return [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]


def test_the_first_hour_makes_the_keys_and_the_server_of_the_text(tmp_path: Path) -> None:
    *commands, [_, _, *flags] = words(_FIRST_HOUR[0])
    printed = list[str]()
    for command in commands:
        done = CliRunner().invoke(main, [*command[1:], "--state-dir", str(tmp_path)])
        assert done.exit_code == 0, command
        printed += [done.stdout.strip()] * (command[1:3] == ["keys", "add"])
    found = read_keys(tmp_path / KEY_FILE)
    assert [(one.tenant, one.role) for one in found] == [("team-a", Role.USER), ("ops", Role.ADMIN)]
    assert all(is_key_of(record, key) for record, key in zip(found, printed, strict=True)), "the key alone is printed"
    assert read_tenants(tmp_path / TENANT_FILE) == {
        "team-a": TenantPolicy(weight=2.0, requests_per_min=600),
        "team-b": TenantPolicy(tokens_per_day=5_000_000),
    }
    config = config_of(start.make_context("start", flags).params)
    assert (config.scheduler.policy, config.api_keys) == (PolicyName.FAIR, True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_hour_works_from_the_certificate_to_the_drill(tmp_path: Path) -> None:
    """All commands are run as they stand, but for the port, the model and where keys and certificates lie."""

    def run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    openssl, [_, _, *flags], curl, [_, *drill] = words(_FIRST_HOUR[1])
    run(*openssl)
    ssl.create_default_context().load_verify_locations(tmp_path / "server.pem")
    host = flags.index("--host")
    here = [str(tmp_path / word) if word.startswith("server.") else word for word in (*flags[:host], *flags[host + 2 :])]
    *commands, [_, _, *fair] = words(_FIRST_HOUR[0])
    model = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.005")
    with real_server(*model, *fair, *here) as server:
        supervisor, place = (sys.executable, "-m", "supervisor"), ("--run-dir", str(server.run_dir))
        key, _ = [out for one in commands if (out := run(*supervisor, *one[1:], *place)) and "keys" in one]
        at = f"https://localhost:{server.port}"
        shown = run(*(word.replace("https://localhost:8000", at).replace("$KEY", key) for word in curl))
        assert [one["id"] for one in json.loads(shown)["data"]] == ["hash-chain"]
        small = (at, "--rounds", "1", "--streams", "4", "--max-tokens", "200", *place)
        told = run(*supervisor, *(word.replace("$KEY", key) for word in drill), *small)
        assert "kill:worker" in told
        assert "kill:scheduler" in told


def test_the_servers_with_a_policy_are_those_of_the_text() -> None:
    lines = [shlex.split(line) for text in _OF_POLICIES for line in text.splitlines()]
    commands = [line[2:] for line in lines if line[:2] == ["supervisor", "start"]]
    fair, sla = (config_of(start.make_context("start", flags).params) for flags in commands)
    assert (fair.scheduler.policy, fair.api_keys) == (PolicyName.FAIR, True)
    assert (sla.scheduler.policy, sla.scheduler.late, sla.api_keys) == (PolicyName.SLA, LateRequests.REFUSE, False)
    (asked,) = (line[-1] for line in lines if line[0] == "curl")
    body = msgspec.to_builtins(msgspec.json.decode(asked, type=CompletionBody))
    assert (body["ttft_ms"], body["deadline_ms"]) == (60_000, 120_000)


def test_the_table_of_the_configuration_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(next(text for kind, text in _BLOCKS if kind == "toml"))
    tenants = load_config(str(path)).tenants
    assert policy_in(tenants, "team-a").max_sequences == 64
    assert policy_in(tenants, "another").requests_per_min == 60


def test_the_commands_do_what_is_said_of_them(tmp_path: Path) -> None:
    lines = [line for kind, text in _BLOCKS if kind == "sh" for line in text.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("supervisor")]
    found = list[bool]()
    for command in commands:
        assert CliRunner().invoke(main, [*command, "--state-dir", str(tmp_path)]).exit_code == 0, command
        found.append("team-a" in read_tenants(tmp_path / TENANT_FILE))
    assert found == [False, True, True, False]
    body = next(shlex.split(line)[-1] for line in lines if "PUT" in line)
    assert msgspec.convert(json.loads(body), TenantPolicy).max_sequences == 32
