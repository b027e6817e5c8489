"""A group of commands that imports the file of a command when somebody asks for it, for quick helps and small commands."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from supervisor.foreign.foreign_names import GroupWithHints
from supervisor.shell.closed_output import ended_by_closed_output


@dataclass(frozen=True)
class LazyCommand:
    """A command that is not imported yet. `module`: whose attribute has the command's name; `help`: its short help."""

    module: str
    help: str


class CommandTable(MutableMapping[str, click.Command]):
    """Commands by name. Those of `lazy` are imported when they are taken from it."""

    def __init__(self, lazy: Mapping[str, LazyCommand]) -> None:
        self._lazy = lazy
        self._loaded: dict[str, click.Command] = {}

    def short_help(self, name: str) -> str | None:
        """The short help of a command that is not imported; None for others."""
        return self._lazy[name].help if name in self._lazy and name not in self._loaded else None

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = getattr(importlib.import_module(self._lazy[name].module), name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:  # without an import
        return name in self._loaded or name in self._lazy

    def __iter__(self) -> Iterator[str]:
        return iter({**self._loaded, **self._lazy})

    def __len__(self) -> int:
        return len({**self._loaded, **self._lazy})


class LazyGroup(GroupWithHints):
    """A group with such a table. `lazy`: its commands that are imported late; `sections`: the names of all of its commands by
    title, in the order of the help."""

    commands: MutableMapping[str, click.Command]

    def __init__(
        self, *arguments: Any, lazy: Mapping[str, LazyCommand], sections: Mapping[str, Sequence[str]], **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._table = self.commands = CommandTable(lazy)
        self._sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and short helps, as click does for commands that are imported. The helps begin in one column."""
        longest = max(map(len, self.list_commands(ctx)))
        limit = formatter.width - 6 - longest
        for title, names in self._sections.items():
            helps = [self._table.short_help(name) or self.commands[name].get_short_help_str(limit) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), text) for name, text in zip(names, helps, strict=True)])

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """As click does; help texts are written here."""
        with ended_by_closed_output():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; commands and their help texts write their output here."""
        with ended_by_closed_output():
            return super().invoke(ctx)
