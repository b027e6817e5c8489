"""The commands of docs/deployment.md: those of the supervisor have their options, and files that they name are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from supervisor.__main__ import main

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]
IMAGES = ("tardigrade-serve:cpu", "tardigrade-serve:cuda")  # their entry point is the supervisor
OWN = [line for line in LINES if "supervisor " in line or (any(image in line for image in IMAGES) and "docker run" in line)]


def arguments_of(line: str) -> list[str]:
    """What the supervisor gets from a line of the shell; [] if that is nothing, because the image has a command of its own."""
    words = shlex.split(line.partition(" > ")[0], comments=True)
    for index, word in enumerate(words):
        if word.rpartition("/")[2] == "supervisor" or word in IMAGES:
            return words[index + 1 :]
    return []


@pytest.mark.parametrize("line", OWN)
def test_the_supervisor_has_these_options(line: str) -> None:
    if not (arguments := arguments_of(line)):
        return
    command: click.Command = main
    while isinstance(command, click.Group):
        command = command.commands[arguments.pop(0)]
    command.make_context(command.name, arguments)


def test_files_that_commands_name_are_there() -> None:
    named = {word for line in LINES for word in re.findall(r"(?<![\w/])((?:ops|tests)/[\w./@-]+)", line)}
    assert len(named) > 10
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
