"""How the process of `supervisor start` begins.

Only the standard library is imported here, because this process becomes the supervisor's parent.
"""

from __future__ import annotations

import os

from messages.descriptors.open_files import most_open_files
from supervisor.activation.passed_sockets import PassedSocket, take_passed_sockets
from supervisor.activation.standard_streams import open_closed_streams
from supervisor.parent.link import ParentLink
from supervisor.parent.parent import start_under_parent


def become_parent() -> tuple[ParentLink, tuple[PassedSocket, ...]]:
    """Become the parent. Returns in each supervisor that it forks: the link to it, and the sockets that the service manager has
    passed to this server."""
    open_closed_streams()
    most_open_files()  # all processes of the server inherit it
    passed = take_passed_sockets(os.environ, os.getpid())
    return start_under_parent(), passed
