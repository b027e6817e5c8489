"""Containers as targets, with a program in the place of docker that writes down what it is asked."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from messages.errors import ConfigError
from supervisor.drill.containers import find_container
from supervisor.drill.faults import inflict, parse_fault

_DOCKER = """#!/bin/sh
echo "$@" >> {calls}
[ "$1" = ps ] && printf 'aa web nginx:1\\nbb engine vllm/vllm-openai:v1\\ncc engine-old vllm/vllm-openai:v0\\n'
[ "$2" != cc ] || {{ echo 'no such container' >&2; exit 1; }}
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program writes its arguments."""
    calls, program = tmp_path / "calls", tmp_path / "docker"
    program.write_text(_DOCKER.format(calls=calls))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return calls


def last(calls: Path) -> str:
    """The arguments of the last call."""
    return calls.read_text().splitlines()[-1]


async def test_the_newest_container_whose_name_or_image_matches_is_killed(calls: Path) -> None:
    assert await inflict(parse_fault("kill:container=vllm-openai"), Path("/nonexistent"), random.Random(1)) == "engine"
    assert last(calls) == "kill bb"


async def test_a_pause_stops_a_container(calls: Path) -> None:
    await inflict(parse_fault("pause:container=^web :3600"), Path("/nonexistent"), random.Random(1))
    assert last(calls) == "pause aa"
    found = find_container(re.compile("^web "))
    assert found is not None
    found.resume()
    assert last(calls) == "unpause aa"


def test_what_docker_refuses_is_reported(calls: Path) -> None:
    old = find_container(re.compile("engine-old"))
    assert old is not None
    with pytest.raises(ConfigError, match="'docker kill cc' to succeed, got exit status 1: no such container"):
        old.kill()
    assert find_container(re.compile("no such name")) is None


def test_without_docker_or_podman(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigError, match="expected docker or podman for a container, got neither"):
        find_container(re.compile("x"))
