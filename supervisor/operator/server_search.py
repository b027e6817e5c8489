"""Finds the servers of this user that run, wherever their run directories are: the kernel lists the sockets in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from messages.run_dir import custodian_socket, run_dir_of
from supervisor.directories.run_dir_files import SERVER
from supervisor.operator.calls import is_alive

_SOCKETS = Path("/proc/net/unix")
_PATH_FIELD = 7  # of a line there
_NAMES = ("/supervisor", custodian_socket(Path("/")))  # one of them is there while a supervisor is replaced


class _Served(msgspec.Struct):
    url: str


def run_dir_with(port: int) -> Path:
    """The run directory of the server that listens on this HTTP port; the usual one of the port if there is no such server."""
    usual = run_dir_of(port)
    if is_alive(usual):
        return usual
    return next((run_dir for run_dir, served in _running() if served == port), usual)


def served_ports() -> list[int]:
    """The HTTP ports of the servers of this user that run now, sorted."""
    return sorted({port for _, port in _running()})


def _running() -> Iterator[tuple[Path, int]]:
    """The run directory and the HTTP port of each server of this user."""
    for run_dir in filter(is_alive, sorted(_directories())):
        with suppress(OSError, ValueError, msgspec.MsgspecError):
            served = msgspec.json.decode((run_dir / SERVER).read_bytes(), type=_Served)
            yield run_dir, urlsplit(served.url).port or 0


def _directories() -> set[Path]:
    """The directories of all sockets on this machine that are named as those of a server."""
    lines = _SOCKETS.read_bytes().splitlines()[1:]
    paths = [
        os.fsdecode(fields[_PATH_FIELD]) for line in lines if len(fields := line.split(maxsplit=_PATH_FIELD)) > _PATH_FIELD
    ]
    return {Path(path).parent for path in paths if path.startswith("/") and path.endswith(_NAMES)}
