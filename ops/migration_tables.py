"""Draws the tables of docs/migration.md: flags, commands and variables of other servers, from the hints of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.foreign.foreign_names import COMMANDS, FLAGS
from supervisor.foreign.variables import VARIABLES

# a flag of ours with its value, a command with its arguments, or what is between backticks already
_CODE = re.compile(
    r"`[^`]+`|--[a-z][a-z-]*(?: '[^']+'| [a-z_.]+=[^\s,;]+| [A-Z]{3,}| 0| debug| info)?"
    r"|supervisor [a-z]+(?: --?[\w-]+| [A-Z]+)*"
)


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
    return _CODE.sub(lambda match: match[0] if match[0].startswith("`") else f"`{match[0]}`", text).replace("|", "\\|")
