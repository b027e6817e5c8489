"""A disk without room, and processes under lower limits.

The disk is a small tmpfs where this user may mount one; elsewhere a limit on the size of files refuses the same writes.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.supervisor.command_line import DEADLINE_S

_DISK = "2m"
_BLOCK = b"x" * 4096


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """This directory, on a disk of its own where that is possible."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=0700", "tmpfs", str(path)]
    with suppress(FileNotFoundError):
        subprocess.run(mount, check=False, capture_output=True, timeout=DEADLINE_S)
    try:
        yield path
    finally:
        if os.path.ismount(path):
            subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=DEADLINE_S)


@contextmanager
def full(disk: Path, pid: int) -> Iterator[None]:
    """As long as this lasts, this process can write nothing to this disk."""
    if os.path.ismount(disk):
        filling = disk / "filling"
        with suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(_BLOCK)
        yield
        filling.unlink()
        return
    with limited(pid, resource.RLIMIT_FSIZE, 0):
        yield


@contextmanager
def limited(pid: int, which: int, limit: int) -> Iterator[None]:
    """A process under a lower limit."""
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (limit, before[1]))
    yield
    resource.prlimit(pid, which, before)
