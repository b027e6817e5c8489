"""The command line of `supervisor rm`. Heavy modules are imported when it runs."""

from __future__ import annotations

import sys

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import fail


@click.command(cls=CommandWithHints, short_help="Remove a model from this machine.")
@click.argument("model")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def rm(model: str, yes: bool) -> None:
    """Remove a model that `supervisor models` lists, with what it was converted to. A model that a running server uses stays.

    Models from the hub are in the cache of its own client, which other programs may use too; a package that pip
    has installed is removed by pip.

    \b
    Exit status:
      0  it is gone
      1  it was not removed: the answer was no
      2  it is not here, is in use, or cannot be removed
    """
    from messages.errors import ConfigError
    from supervisor.library.in_use import servers_using
    from supervisor.library.removal import remove
    from supervisor.library.sizes import size_text
    from supervisor.library.stored_model import find_stored

    stored = find_stored(model)
    if stored is None:
        fail(ExitCode.UNUSABLE, f"{model}: expected a model that `supervisor models` lists, got none")
    if servers := servers_using(stored):
        fail(
            ExitCode.UNUSABLE, f"{model}: expected a model that no server uses, got one that is served at {', '.join(servers)}"
        )
    if not yes:
        if not sys.stdin.isatty():
            fail(ExitCode.UNUSABLE, "expected --yes without a terminal, got none")
        if not click.confirm(f"Remove {model} ({size_text(stored.n_bytes)}, {stored.source.value}: {stored.path})?"):
            sys.exit(ExitCode.FAULT)
    try:
        n_bytes = remove(stored)
    except (ConfigError, OSError) as error:
        fail(ExitCode.UNUSABLE, f"{model}: {error}")
    click.echo(f"{model}: {size_text(n_bytes)} are free again")
