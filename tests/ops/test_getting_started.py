"""The examples of docs/getting_started.md, run as they stand there, and that the commands which it shows exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from supervisor.__main__ import main
from supervisor.chat.chat_commands import command_names

PAGE = (Path(__file__).parents[2] / "docs" / "getting_started.md").read_text(encoding="utf-8")
DEADLINE_S = 240.0


def shell_lines() -> list[list[str]]:
    """The words of each command that the page shows."""
    blocks = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    return [shlex.split(line.rpartition("| ")[2], comments=True) for line in blocks.splitlines() if "supervisor" in line]


def test_each_command_of_the_page_exists_with_its_flags() -> None:
    for words in shell_lines():
        command = main.commands[words[1]]
        assert isinstance(command, click.Command)
        given = words[2 : words.index("<")] if "<" in words else words[2:]
        command.make_context(words[1], given)
    assert len(shell_lines()) >= 11


def test_the_page_names_every_command_of_the_chat() -> None:
    assert [name for name in command_names() if name not in PAGE] == []


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Servers that live for seconds need no spares."""
    (tmp_path / "server.toml").write_text("[supervisor]\nspares = false\n")
    return {**os.environ, "TARDIGRADE_CONFIG": str(tmp_path / "server.toml")}


def run(command: Sequence[str], environment: dict[str, str], folder: Path) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_program_of_the_page_runs(environment: dict[str, str]) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    said = run([sys.executable, "-c", source], environment, Path.cwd())
    first, several = said.splitlines()[0], re.search(r"^\[\[.*\]\]$", said, re.MULTILINE)
    assert first.strip()
    assert several is not None


QUESTIONS = [words for words in shell_lines() if words[1] == "run"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [*(pytest.param(words, marks=pytest.mark.long) for words in QUESTIONS[:-1]), QUESTIONS[-1]])
def test_the_answers_of_the_page_come(words: list[str], tmp_path: Path, environment: dict[str, str]) -> None:
    """Each of them has a server of its own."""
    (tmp_path / "notes.txt").write_text("A tardigrade is a small animal.\n")
    command = shlex.join([sys.executable, "-m", "supervisor", *words[1:]]).replace("'<'", "<")
    assert run(["sh", "-c", command], environment, tmp_path).strip()
