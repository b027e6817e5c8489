"""Help texts in sections: each option and each command is in one of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import click
import pytest
from click.testing import CliRunner

from supervisor.__main__ import main
from supervisor.shell.command_table import SECTIONS
from supervisor.shell.start_options import START_OPTIONS


def test_each_command_is_in_one_section_of_the_help() -> None:
    assert Counter(chain.from_iterable(SECTIONS.values())) == Counter(main.commands.keys())
    said = CliRunner().invoke(main, ["--help"]).output
    assert [line for line in said.splitlines() if line.endswith(":")] == ["Options:", *(f"{title}:" for title in SECTIONS)]


@pytest.mark.parametrize("name", ["start", "check-config"])
def test_each_option_is_shown_once_below_its_title(name: str) -> None:
    said = CliRunner().invoke(main, [name, "--help"], terminal_width=80).output
    assert set(main.commands[name].params) >= set(chain.from_iterable(START_OPTIONS.values()))
    for (title, options), end in zip(START_OPTIONS.items(), [*list(START_OPTIONS)[1:], "Help"], strict=True):
        part = said.partition(f"\n{title}:\n")[2].partition(f"\n{end}:\n")[0]
        shown = [line.split()[0] for line in part.splitlines() if line.startswith("  --")]
        assert shown == [option.opts[0] for option in options]
    # click keeps the names that the first caller of a command gave; another test may have called it without its group
    assert said.partition("\nHelp:\n")[2].split()[0] in ("-h,", "--help")


def test_a_flag_with_two_names_is_not_set_unless_it_is_given() -> None:
    """What is not given is left to the configuration file."""
    start = main.commands["start"]
    assert isinstance(start, click.Command)
    with start.make_context("start", ["--no-vault"]) as context:
        assert {key: value for key, value in context.params.items() if value not in (None, ())} == {"vault": False}
