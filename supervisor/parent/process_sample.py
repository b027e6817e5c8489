"""Reads the state of a process's threads from /proc, to tell a hung process from one that does not get a core."""

from __future__ import annotations

import os
from contextlib import suppress

from supervisor.policy.own_time import ProcessSample

_NS = 1e-9
_MOST_BYTES = 4096  # of one file; they have some hundred


def sample_of(pid: int) -> ProcessSample | None:
    """The threads of a process now; None if it has ended. A kernel without CONFIG_SCHED_INFO knows no run delays."""
    tasks = f"/proc/{pid}/task"
    states: list[bytes] = []
    delays_s: dict[int, float] = {}
    try:
        threads = os.listdir(tasks)
    except OSError:
        return None
    for thread in threads:
        with suppress(OSError, IndexError, ValueError):  # the thread has ended
            states.append(read_file(f"{tasks}/{thread}/stat").rpartition(b")")[2].split()[0])
            delays_s[int(thread)] = int(read_file(f"{tasks}/{thread}/schedstat").split()[1]) * _NS
    if not states:
        return None
    is_suspended = all(state in (b"T", b"t") for state in states)
    return ProcessSample(is_suspended=is_suspended, waits_for_disk=b"D" in states, run_delays_s=delays_s)


def read_file(path: str) -> bytes:
    """The content of a small file of the kernel, read several times a second. `Path` and a buffer take twice as long.

    Raises: OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _MOST_BYTES)
    finally:
        os.close(fd)
