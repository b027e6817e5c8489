"""The private directory of one server: sockets, lock, journals. Operators find it by the server's port.

$XDG_RUNTIME_DIR/tardigrade-<port>/    without that variable tardigrade-<uid>/<port>/ in /tmp; mode 0700, checked
    lock                  held by the supervisor and its parent, until the last of them has ended
    journals.lock         the same for the journals, when they are here; see state_dir.py
    gateways.json         for how many gateways the journals were written, when they are here
    supervisor.pid        the supervisor's process id, for the operator's commands
    parent.pid            that of its parent
    children.json         register of the child processes; a supervisor that was killed leaves it behind
    incarnations.json     the newest incarnation of every actor; kept across servers
    server.json           what this server consists of, for the next supervisor
    server.next.json      what it consists of after the rolling restart that is under way
    supervisor.json       the command and the budgets that the next supervisor goes on with
    log_level             from which on standard error shows events, where SIGHUP has changed it
    served                exists once the whole tree has served
    end.json              how the last server ended, for the operator's commands
    supervisor            inbox (a socket, like the next ones)
    worker-0.1.3          inbox of worker/0.1 in its third incarnation
    gang-0.3/             rendezvous of the ranks of that incarnation
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from messages.errors import ConfigError

END = "end.json"
PID, PARENT_PID = "supervisor.pid", "parent.pid"
REGISTER = "children.json"
SERVER = "server.json"
SAVED_STATE = "supervisor.json"
NEXT_SERVER = "server.next.json"
_SOCKET_PATH_BYTES = 107  # sockaddr_un, without its closing zero
_LONGEST_SOCKET_NAME = "cache_directory-00.00.1234567890"


def check_length(path: Path) -> None:
    """Check the length of a run directory's path. Raises: ConfigError when the kernel refuses so long a socket path."""
    if (excess := excess_bytes(path)) > 0:
        raise ConfigError(f"run_dir: expected a path of at most {len(os.fsencode(path)) - excess} bytes, got {path}")


def excess_bytes(path: Path) -> int:
    """By how many bytes the path of a run directory is too long for the sockets in it; 0 or less: it is not."""
    return len(os.fsencode(path / _LONGEST_SOCKET_NAME)) - _SOCKET_PATH_BYTES


def supervisor_endpoint(path: Path) -> str:
    """The endpoint of the supervisor's inbox in a run directory."""
    return f"ipc://{path / 'supervisor'}"


def read_pid(path: Path) -> int | None:
    """The process id of the supervisor in a run directory, or None when none is written there."""
    return _read_number(path / PID)


def read_parent_pid(path: Path) -> int | None:
    """The process id of the supervisor's parent in a run directory, or None when none is written there."""
    return _read_number(path / PARENT_PID)


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def read_end(path: Path) -> tuple[int, str]:
    """(exit status, reason) of the server that was in a run directory; (0, "") if none is written there."""
    try:
        end = json.loads((path / END).read_text())
        return int(end["exit_status"]), str(end["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


def socket_name(name: str, incarnation: int) -> str:
    """The name of the inbox of one incarnation of an actor."""
    return f"{name.replace('/', '-')}.{incarnation}"
