"""The flags by which `supervisor keys` and `supervisor tenants` find the state directory of a server, and words about it."""

from __future__ import annotations

import errno
import shlex
from functools import wraps
from pathlib import Path
from typing import Any

import click

from messages.run_dir import DEFAULT_PORT
from supervisor.operator.command_line import PORT

_FULL = (errno.ENOSPC, errno.EDQUOT)  # another directory would be that of another server
_STATE_DIR = "Its state directory, if it does not run and is started with --state-dir."
_RUN_DIR = "Its run directory, if it is started with --run-dir, or by another user."


def of_server(command: Any) -> Any:
    """Add the flags that say of which server. The command gets `port` and `state_dir`, which --run-dir leads to as well."""

    @wraps(command)
    def with_place(run_dir: Path | None, state_dir: Path | None, **rest: Any) -> Any:
        if run_dir is not None and state_dir is None:
            from supervisor.access.place import state_dir_of_run_dir

            state_dir = state_dir_of_run_dir(run_dir.absolute())
        return command(state_dir=state_dir, **rest)

    path = click.Path(path_type=Path)
    with_place = click.option("--state-dir", type=path, help=_STATE_DIR)(with_place)
    with_place = click.option("--run-dir", type=path, help=_RUN_DIR)(with_place)
    port = click.option("--port", type=PORT, default=DEFAULT_PORT, show_default=True, help="HTTP port of the server.")
    return port(with_place)


def same_server(port: int, state_dir: Path | None) -> str:
    """The flags with which another command is about the same server; "" for that on the default port."""
    if state_dir is not None:
        return f" --state-dir {shlex.quote(str(state_dir))}"
    return "" if port == DEFAULT_PORT else f" --port {port}"


def not_written(path: Path, error: OSError) -> str:
    """What is said of a file in the state directory that cannot be read or written."""
    if error.errno in _FULL:
        return f"{path} cannot be written: {error.strerror}; nothing has changed. Free its disk, and ask again"
    return f"state_dir: expected a directory where {path} can be kept, got {error.strerror}; --state-dir names another one"


def tell_if_without_keys(port: int, state_dir: Path | None) -> None:
    """Say on standard error if the server that runs asks for no keys: keys and tenants then mean nothing."""
    from supervisor.access.place import asks_no_keys

    if asks_no_keys(port, state_dir):
        click.echo("The server that runs now asks for no API keys: this counts once it is started with --api-keys.", err=True)
