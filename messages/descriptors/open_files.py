"""How many files a process may have open: every process of a server has the limit that the system allows at most."""

from __future__ import annotations

import resource
from contextlib import suppress

FILES_BESIDE_CONNECTIONS = 256  # that a process with many connections keeps for everything else


def most_open_files() -> int:
    """Raise the limit of open files as far as the system allows; returns the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return now if now != resource.RLIM_INFINITY else 1 << 30
