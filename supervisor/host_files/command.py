"""The command line of `supervisor config files`. Heavy modules are imported when it runs."""

from __future__ import annotations

from pathlib import Path

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import fail


@click.command(cls=CommandWithHints, short_help="Write out the files for systemd, Prometheus, Grafana and others.")
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--only", "rooms", multiple=True, metavar="ROOM", help="Such as systemd or grafana; may be repeated. Default: all."
)
@click.option("--force", is_flag=True, help="Write over files with another content.")
def files(directory: Path | None, rooms: tuple[str, ...], force: bool) -> None:
    """Write the files that other programs need for a server below DIRECTORY: units, rules, dashboards. Without it: list them.

    Units name the programs of this installation. Nothing is written if a file with another content is there.

    \b
    supervisor config files --only systemd /etc/tardigrade/files
    supervisor config files monitoring --only prometheus --only grafana

    \b
    Exit status:
      0  written, or listed
      2  there is no such room, or the files cannot be written
    """
    from messages.errors import ConfigError
    from supervisor.host_files.folder import host_files, write_files

    try:
        found = host_files(rooms)
        if directory is None:
            for file in found:
                click.echo(file.name)
            return
        written = write_files(found, directory, force)
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    except OSError as error:
        fail(ExitCode.UNUSABLE, f"{error.filename or directory}: {error.strerror}")
    for path in written:
        click.echo(path)
    click.echo(f"{len(written)} files written, {len(found) - len(written)} were there", err=True)
