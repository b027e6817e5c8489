"""Where one server keeps its sockets. Servers and the clients on the same machine derive the paths with these functions.

Only the standard library is imported here, because the help of the command line imports this file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULT_PORT = 8000
MAX_PORT = 65_535
ZEROMQ_FILE = "zeromq-{index}"
HTTP_FILE = "http-{index}"
SERVED = "served"  # this file is there once the whole tree of a server has served


def run_dir_of(port: int, environment: Mapping[str, str] | None = None, user_id: int | None = None) -> Path:
    """The private directory (mode 0700, made by the supervisor) of the server that listens on this HTTP port.

    `$XDG_RUNTIME_DIR/tardigrade-<port>` if that variable names a directory, else `tardigrade-<uid>/<port>` in /tmp.

    Raises: ValueError for a port that is not a whole number from 0 to `MAX_PORT`.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= MAX_PORT:
        raise ValueError(f"port: expected a whole number from 0 to {MAX_PORT}, got {port!r}")
    variables = os.environ if environment is None else environment
    runtime = variables.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / f"tardigrade-{port}"
    return Path("/tmp", f"tardigrade-{os.getuid() if user_id is None else user_id}", str(port))


def vault_path(run_dir: Path, replica: int) -> Path:
    """The socket of one replica's vault in a run directory."""
    return run_dir / f"vault-{replica}"


def zeromq_endpoint(run_dir: Path, gateway: int = 0) -> str:
    """The endpoint of one gateway's public ZeroMQ socket in a run directory."""
    return f"ipc://{run_dir / ZEROMQ_FILE.format(index=gateway)}"


def zeromq_endpoints_beside(socket: Path) -> list[str]:
    """The endpoints of the gateways whose sockets are in the same run directory as one gateway's public one, in order. Those of
    dead processes may be among them. Any other path: none.
    """
    prefix, folder = ZEROMQ_FILE.format(index=""), socket.parent
    if not _is_zeromq_socket(socket.name, prefix) or not folder.is_dir():
        return []
    numbers = sorted(int(name.removeprefix(prefix)) for name in os.listdir(folder) if _is_zeromq_socket(name, prefix))
    return [zeromq_endpoint(folder, number) for number in numbers]


def _is_zeromq_socket(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.removeprefix(prefix).isdecimal()


def custodian_socket(run_dir: Path) -> str:
    """The path of the unix socket at which gateways find the custodian, in a run directory."""
    return str(run_dir / "custodian.sock")


def http_socket(run_dir: Path, gateway: int) -> Path:
    """The unix socket in a run directory where one of several gateways takes HTTP calls that the others forward."""
    return run_dir / HTTP_FILE.format(index=gateway)
