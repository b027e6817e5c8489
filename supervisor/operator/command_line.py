"""What the operator's commands share: reading the configuration from flags, finding their server, and errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from messages.outcomes import ExitCode
from messages.run_dir import DEFAULT_PORT, MAX_PORT

PORT = click.IntRange(0, MAX_PORT)
SECONDS = click.FloatRange(min=0.0, max=86_400.0)

KEY_HINT = "--api-key or $OPENAI_API_KEY gives a key"
_SERVICE_DIR = "for example --run-dir /run/tardigrade/tardigrade-8000 for the systemd service"


def load(flags: dict[str, Any]) -> Any:
    """The configuration from the file and the flags. Exits as UNUSABLE when it cannot be used."""
    from messages.errors import ConfigError

    try:
        return config_of(flags)
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))


def config_of(flags: dict[str, Any]) -> Any:
    """The configuration from the file and the flags. Raises: ConfigError when it cannot be used."""
    from supervisor.config.config_file import table_of
    from supervisor.config.server_config import load_config

    path, assignments = flags["config"], flags["assignments"]
    tables = []
    for key, value in flags.items():
        if value is not None and key not in ("config", "assignments"):
            section, dot, name = key.partition("__")
            tables.append({section: {name: value}} if dot else {key: value})
    return load_config(path, [*tables, *map(table_of, assignments)])


def lasting(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags of a start as they can be read again from another directory and by another process."""
    import os

    from supervisor.config.server_config import CONFIG_VARIABLE

    path = flags["config"] or os.environ.get(CONFIG_VARIABLE)
    return {**flags, "config": str(Path(path).absolute()) if path else None, "assignments": list(flags["assignments"])}


def server_flags(command: Any) -> Any:
    """Add the flags by which commands find their server."""
    text = f"Run directory of the server, if another user has started it, {_SERVICE_DIR}."
    command = click.option("--run-dir", type=click.Path(path_type=Path), help=text)(command)
    return click.option("--port", type=PORT, default=DEFAULT_PORT, show_default=True, help="HTTP port of the server.")(command)


def run_dir_for(port: int, run_dir: Path | None) -> Path:
    """The run directory of a server: the one that is named, else that of the server on this port, wherever it is."""
    from supervisor.operator.server_search import run_dir_with

    return (run_dir or run_dir_with(port)).absolute()


def reach(call: Any) -> Any:
    """Call a server. Exits as NO_SERVER when there is none, and names those that there are."""
    from supervisor.operator.calls import NoServer

    try:
        return call()
    except NoServer as error:
        fail_without_server(error)


def fail_without_server(error: Exception) -> NoReturn:
    """Exit as NO_SERVER, and name the servers that there are."""
    from supervisor.operator.server_search import served_ports

    ports = ", ".join(map(str, served_ports()))
    there_are = f"servers of this user run on port {ports}; " if ports else ""
    fail(ExitCode.NO_SERVER, f"{error}; {there_are}--port or --run-dir names another server, {_SERVICE_DIR}")


def fail(status: int, text: str) -> NoReturn:
    """Say why a command fails, and exit with this status."""
    click.echo(f"supervisor: {text}", err=True)
    sys.exit(status)
