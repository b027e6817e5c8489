"""The examples of docs/operations.md about policies and tenants are what they say they are."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import msgspec
from click.testing import CliRunner

from actors.gateway.bodies.schema import CompletionBody
from actors.scheduler.sequences.policy import LateRequests, PolicyName
from messages.access.tenant_file import TENANT_FILE, read_tenants
from messages.access.tenant_policy import TenantPolicy, policy_in
from ops.doc_tables import REPO
from supervisor.__main__ import main, start
from supervisor.config.server_config import load_config
from supervisor.operator.command_line import config_of

_TEXT = (REPO / "docs" / "operations.md").read_text(encoding="utf-8")
_OF_POLICIES = re.findall(r"```sh\n(.*?)```", _TEXT.partition("## A policy for")[2].partition("\n## ")[0], re.DOTALL)
_BLOCKS = re.findall(r"```(toml|sh)\n(.*?)```", _TEXT.partition("## Keys, tenants and limits")[2], re.DOTALL)


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
