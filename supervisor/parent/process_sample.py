"""Reads the state of a process's threads from /proc, to tell a hung process from one that does not get a core."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from supervisor.policy.own_time import ProcessSample

_NS = 1e-9


def sample_of(pid: int, proc: Path = Path("/proc")) -> ProcessSample | None:
    """The threads of a process now; None if it has ended. A kernel without CONFIG_SCHED_INFO knows no run delays."""
    states: list[bytes] = []
    delays_s: dict[int, float] = {}
    try:
        threads = list((proc / str(pid) / "task").iterdir())
    except OSError:
        return None
    for thread in threads:
        with suppress(OSError, IndexError, ValueError):  # the thread has ended
            states.append((thread / "stat").read_bytes().rpartition(b")")[2].split()[0])
            delays_s[int(thread.name)] = int((thread / "schedstat").read_bytes().split()[1]) * _NS
    if not states:
        return None
    is_suspended = all(state in (b"T", b"t") for state in states)
    return ProcessSample(is_suspended=is_suspended, waits_for_disk=b"D" in states, run_delays_s=delays_s)
