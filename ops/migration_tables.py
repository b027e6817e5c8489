"""Draws the tables of docs/migration.md: flags, commands and variables of other servers, from the hints of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

import click

from supervisor.__main__ import main
from supervisor.foreign.foreign_names import COMMANDS, FLAGS
from supervisor.foreign.variables import VARIABLES

# what is between backticks already, or a flag of ours with its value
_FLAG = r"`[^`]+`|--[a-z][a-z-]*(?: '[^']+'| [a-z_.]+=[^\s,;]+| [A-Z]{3,}| 0| debug| info| warning| json)?"


def foreign_flags_table() -> str:
    """One row for each thing that has another name here."""
    return _table("flag there", FLAGS)


def foreign_commands_table() -> str:
    """One row for each command that has another name here."""
    return _table("command there", COMMANDS)


def foreign_variables_table() -> str:
    """One row for each thing that variables of the environment say to other servers."""
    return _table("variable there", VARIABLES)


def _table(title: str, names: Mapping[str, str]) -> str:
    there: dict[str, list[str]] = {}
    for name, instead in names.items():
        there.setdefault(instead, []).append(f"`{name}`")
    rows = [f"| {', '.join(group)} | {_with_code(instead)} |" for instead, group in there.items()]
    return "\n".join([f"| {title} | here |", "|---|---|", *rows])


def _with_code(text: str) -> str:
    return _code().sub(lambda match: match[0] if match[0].startswith("`") else f"`{match[0]}`", text).replace("|", "\\|")


@cache
def _code() -> re.Pattern[str]:
    """What is shown as code: a command of ours with its flags and arguments, or what `_FLAG` finds."""
    commands = "|".join(sorted(_command_names(main), key=len, reverse=True))
    return re.compile(rf"{_FLAG}|supervisor (?:{commands})(?![\w-])(?: --?[\w-]+| [A-Z]{{2,}})*")


def _command_names(group: click.Group) -> Iterator[str]:
    """Every command below a group: `chat`, `keys`, `keys add`."""
    for name in group.list_commands(click.Context(group)):
        yield name
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from (f"{name} {below}" for below in _command_names(command))
