"""Finds the servers of this user that run, wherever their run directories are: the kernel lists the sockets in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from messages.local.private_server import is_private
from messages.run_dir import custodian_socket, run_dir_of
from supervisor.directories.run_dir_files import SERVER
from supervisor.operator.calls import is_alive

_SOCKETS = Path("/proc/net/unix")
_PATH_FIELD = 7  # of a line there
_NAMES = ("/supervisor", custodian_socket(Path("/")))  # one of them is there while a supervisor is replaced

_ANY, _LOOPBACK = ("0.0.0.0", "::"), ("127.0.0.1", "::1")  # to be read, not to be listened on


class _Served(msgspec.Struct):
    url: str


def run_dir_with(port: int) -> Path:
    """The run directory of the server that listens on this HTTP port; the usual one of the port if there is no such server."""
    usual = run_dir_of(port)
    if is_alive(usual):
        return usual
    return next((run_dir for run_dir, served in running() if served == port), usual)


def local_url(port: int, run_dir: Path) -> str:
    """Where HTTP clients on this machine reach the server of a run directory; plain HTTP on this port if it says nothing."""
    with suppress(OSError, ValueError, msgspec.MsgspecError):
        served = msgspec.json.decode((run_dir / SERVER).read_bytes(), type=_Served)
        if urlsplit(served.url).port == port:
            return on_this_machine(served.url)
    return f"http://127.0.0.1:{port}"


def on_this_machine(url: str) -> str:
    """The same server for a client on this machine. With TLS by the name localhost: certificates have no address like 0.0.0.0,
    and seldom one of the loopback interface."""
    parts = urlsplit(url)
    if listens_everywhere(url) or (parts.scheme == "https" and parts.hostname in _LOOPBACK):
        host = "localhost" if parts.scheme == "https" or parts.hostname == "::" else "127.0.0.1"
        return f"{parts.scheme}://{host}:{parts.port}"
    return url


def listens_everywhere(url: str) -> bool:
    """Whether a server with this address listens on every address of its machine."""
    return urlsplit(url).hostname in _ANY


def served_ports() -> list[int]:
    """The HTTP ports of the servers of this user that run now, sorted; not of private ones, which end with the program that has
    started them, and not of those that have no port yet."""
    return sorted({port for run_dir, port in running() if port and not is_private(run_dir)})


def running() -> Iterator[tuple[Path, int]]:
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
