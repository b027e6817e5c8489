"""Help texts in sections: the options of a command that has many, and the commands of a group that has many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import click

from supervisor.foreign.foreign_names import CommandWithHints

Sections = Mapping[str, Sequence[click.Option]]


class SectionedCommand(CommandWithHints):
    """A command whose help shows its options under titles. `sections`: its options by title, as they are shown. They come after
    `params`, which are shown last with --help."""

    def __init__(self, *arguments: Any, sections: Sections, params: list[click.Parameter] | None = None, **more: Any) -> None:
        super().__init__(*arguments, params=[*(params or ()), *chain.from_iterable(sections.values())], **more)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section, then what is in none."""
        for title, options in self._sections.items():
            _write_options(title, options, ctx, formatter)
        shown = set(chain.from_iterable(self._sections.values()))
        rest = [option for option in self.get_params(ctx) if isinstance(option, click.Option) and option not in shown]
        _write_options("Help", rest, ctx, formatter)


def _write_options(title: str, options: Iterable[click.Option], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    rows = [row for option in options if (row := option.get_help_record(ctx)) is not None]
    with formatter.section(title):
        formatter.write_dl(rows)
