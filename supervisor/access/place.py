"""Where the keys and tenants of a server are."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from supervisor.directories.run_dir_files import SERVER
from supervisor.directories.state_dir import default_state_dir
from supervisor.log_reader.place import log_file_of
from supervisor.operator.server_search import run_dir_with


class _KeysPlace(msgspec.Struct):
    """What a running server says of its keys in its run directory."""

    keys_dir: str = ""


def state_dir_for(port: int, state_dir: Path | None) -> Path:
    """The state directory of a server: the one that is named, that of the server that runs on this port, else the usual one."""
    return state_dir or _told(run_dir_with(port)) or default_state_dir(port, os.environ, Path.home())


def state_dir_of_run_dir(run_dir: Path) -> Path:
    """The state directory of the server with this run directory: the one that it says while it runs, else the run directory,
    which a start with --run-dir alone takes for both."""
    return _told(run_dir) or run_dir


def asks_no_keys(port: int, state_dir: Path | None) -> bool:
    """True if the server that runs on this port has this state directory and was started without --api-keys."""
    run_dir = run_dir_with(port)
    return not _keys_dir(run_dir) and _told(run_dir) == state_dir_for(port, state_dir)


def _keys_dir(run_dir: Path) -> str:
    try:
        return msgspec.json.decode((run_dir / SERVER).read_bytes(), type=_KeysPlace).keys_dir
    except (OSError, msgspec.MsgspecError):
        return ""


def _told(run_dir: Path) -> Path | None:
    told = _keys_dir(run_dir)
    log_file = log_file_of(run_dir)  # of a server that asks for no keys
    return Path(told) if told else log_file.parent if log_file else None
