"""Commands are imported when they are asked for; until then nothing is seen of it."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from supervisor.__main__ import main
from supervisor.shell.command_table import COMMANDS
from supervisor.shell.lazy_group import CommandTable, LazyCommand, LazyGroup
from tests.support.supervisor.command_line import DEADLINE_S

PROGRAM = """
import sys
from supervisor.__main__ import main
try:
    main(sys.argv[1:], prog_name="supervisor")
finally:
    print(*sorted(name for name in sys.modules if name.startswith(("supervisor", "actors", "gpu_workers"))), file=sys.stderr)
"""
ALWAYS = {
    "supervisor", "supervisor.__main__", "supervisor.operator", "supervisor.operator.command_line",
    "supervisor.foreign", "supervisor.foreign.foreign_names", "supervisor.foreign.variables",
    "supervisor.shell", "supervisor.shell.closed_output", "supervisor.shell.command_table", "supervisor.shell.late_help",
    "supervisor.shell.lazy_group", "supervisor.shell.sections", "supervisor.shell.start_options",
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_name_and_the_help_of_the_table(name: str) -> None:
    command = CommandTable(COMMANDS)[name]
    assert command.name == name
    assert command.get_short_help_str(200) == COMMANDS[name].help


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_help_of_a_command_fits_into_80_columns(name: str) -> None:
    """But for commands to copy, which are not broken."""
    said = CliRunner().invoke(main, [name, "--help"], env={"COLUMNS": "80"}, terminal_width=80)
    assert said.exit_code == 0
    long = [line for line in said.output.splitlines() if len(line) > 80]
    assert [line for line in long if "supervisor " not in line] == []


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["--help"], set[str]()),
        (["--version"], set[str]()),
        (["cordon", "--help"], {"supervisor.cordons", "supervisor.cordons.command"}),
        (["status", "--help"], set[str]()),
    ],
)
def test_only_what_is_asked_for_is_imported(words: list[str], more: set[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert set(done.stderr.split()) == ALWAYS | more


def test_the_help_has_the_words_of_a_group_which_has_imported_all() -> None:
    whole = click.Group("supervisor", {name: main.commands[name] for name in main.commands}, help=main.help)
    lazily = LazyGroup("supervisor", lazy=COMMANDS, sections={"All": sorted(main.commands)}, help=main.help)
    for name in ("start", "status", "check-config"):
        lazily.add_command(main.commands[name])
    shown = [CliRunner().invoke(group, ["--help"]).output for group in (whole, lazily)]
    assert shown[0].replace("Commands:", "All:") == shown[1]
    assert "doctor" in shown[0]


def test_a_table_knows_its_names_without_an_import() -> None:
    table = CommandTable({"nothing": LazyCommand("no.such.module", "None.")})
    table["there"] = click.Command("there")
    assert "nothing" in table
    assert sorted(table) == ["nothing", "there"]
    assert len(table) == 2
    with pytest.raises(ModuleNotFoundError):
        table["nothing"]
    with pytest.raises(KeyError):
        table["else"]
    del table["there"]
    assert list(table) == ["nothing"]
