"""`supervisor config sample` and `supervisor config show`; `files` has a room of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints, GroupWithHints
from supervisor.host_files.command import files
from supervisor.operator.command_line import fail, load, run_dir_for, server_flags

if TYPE_CHECKING:
    from supervisor.config.origins import Setting

_FILE = "Show what this TOML file gives, instead of what a running server has."
_ORIGIN = "Say of each value whether it comes from the file, a flag or the defaults."


@click.group(cls=GroupWithHints, short_help="Print a sample configuration or a server's own; write out files.")
def config() -> None:
    """Print a sample configuration, or the one that a server has; write out files for other programs. check-config checks one.

    \b
    Exit status:
      0  printed
      2  the configuration cannot be used, or files cannot be written
      6  no server was found
    """


config.add_command(files)


@config.command(cls=CommandWithHints)
def sample() -> None:
    """Print a configuration file with every key, its meaning and its default: supervisor config sample > server.toml

    \b
    Exit status:
      0  printed
    """
    from supervisor.config.sample import sample_text

    click.echo(sample_text(), nl=False)


@config.command(cls=CommandWithHints)
@click.option("--config", "file", type=click.Path(dir_okay=False), help=_FILE)
@click.option(
    "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="A value above the file; may be repeated."
)
@click.option("--origin", is_flag=True, help=_ORIGIN)
@click.option("--effective", is_flag=True, help="Show defaults too. Default: only what differs from them.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of keys, values and origins as JSON.")
@server_flags
def show(
    file: str | None,
    assignments: tuple[str, ...],
    origin: bool,
    effective: bool,
    as_json: bool,
    port: int,
    run_dir: Path | None,
) -> None:
    """Show the configuration of a running server, or of a file, as TOML.

    \b
    Exit status:
      0  shown
      2  the configuration cannot be used
      6  no server was found
    """
    if file is None and not assignments:
        found = _of_server(run_dir_for(port, run_dir))
    else:
        found = _of_flags({"config": file, "assignments": assignments})
    if not effective:
        found = [one for one in found if one.origin != "default"]
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _print(found, origin)


def _of_flags(flags: dict[str, Any]) -> list[Setting]:
    from supervisor.config.server_config import described

    return _settings(described(load(flags)), flags)


def _of_server(where: Path) -> list[Setting]:
    import msgspec

    from supervisor.config.server_config import ServerConfig, described
    from supervisor.directories.run_dir import RunDir
    from supervisor.directories.server import read_server
    from supervisor.restart.command import in_directory_of

    try:
        kept = read_server(RunDir.open_unlocked(where)).origin
    except (OSError, msgspec.MsgspecError):
        fail(ExitCode.NO_SERVER, f"expected a running server in {where}, got none; --config FILE shows a file")
    if kept is None:
        fail(ExitCode.UNUSABLE, "the server has not written down its settings; stop and start it")
    with in_directory_of(where):
        return _settings(described(msgspec.convert(kept.config, ServerConfig)), kept.flags)


def _settings(effective: dict[str, Any], flags: dict[str, Any]) -> list[Setting]:
    import os

    from supervisor.config.config_file import read_table, table_of
    from supervisor.config.origins import settings_of
    from supervisor.config.server_config import CONFIG_VARIABLE
    from supervisor.config.units import without_units

    path = flags["config"] or os.environ.get(CONFIG_VARIABLE)
    sources = [(f"file {path}", without_units(read_table(Path(path))))] if path else []
    for key, value in flags.items():
        if value is not None and key not in ("config", "assignments"):
            section, dot, name = key.partition("__")
            sources.append(("flag", {section: {name: value}} if dot else {key: value}))
    sources += [("--set", table_of(one)) for one in flags["assignments"]]
    return settings_of(effective, sources)


def _print(found: list[Setting], with_origin: bool) -> None:
    from supervisor.config.sample import toml

    shown, section = [one for one in found if one.value is not None], ""
    for one in sorted(shown, key=lambda one: one.key.count(".") > 0):  # keys above all sections first
        path, _, key = one.key.rpartition(".")
        if path != section:
            section = path
            click.echo(f"\n[{section}]")
        click.echo(f"{key} = {toml(one.value)}" + (f"  # {one.origin}" if with_origin else ""))
