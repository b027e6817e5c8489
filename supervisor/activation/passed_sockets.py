"""The sockets that a service manager has passed to this process, by systemd's protocol of socket activation.

The manager keeps its own duplicates, so connections that come between two servers wait in the queue and are not refused.

    LISTEN_PID      the process that they are for
    LISTEN_FDS      how many; their descriptors begin with 3
    LISTEN_FDNAMES  their names with colons between them

Only the standard library is imported here, because the supervisor's parent imports this file.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass

_FIRST_FD = 3
_PID, _COUNT, _NAMES = "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"
_UNNAMED = "unknown"  # as systemd calls them


@dataclass(frozen=True)
class PassedSocket:
    """One descriptor that the service manager has passed. `name`: its FileDescriptorName."""

    fd: int
    name: str = _UNNAMED


def take_passed_sockets(environment: MutableMapping[str, str], pid: int) -> tuple[PassedSocket, ...]:
    """The sockets for the process `pid`; none if there are none, or if they are another process's.

    The variables are removed from `environment`, and programs that this process executes do not get the descriptors: no child
    takes them for its own.

    Raises: OSError if a descriptor is not there.
    """
    found = [environment.pop(name, "") for name in (_PID, _COUNT, _NAMES)]
    if found[0] != str(pid) or not found[1].isdecimal():
        return ()
    names = found[2].split(":") if found[2] else []
    passed = []
    for index in range(int(found[1])):
        name = names[index] if index < len(names) else _UNNAMED
        os.set_inheritable(_FIRST_FD + index, False)
        passed.append(PassedSocket(_FIRST_FD + index, name))
    return tuple(passed)
