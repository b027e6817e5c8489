"""Processor time and memory of a process and all processes below it, from /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from ops.bench.leaks.held_resources import descendants_of

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)  # after the name: user and system time of the process, and of children that it has waited for


def processor_s(pid: int) -> float:
    """Seconds of processor time that the tree has used until now. Two looks differ by what was used meanwhile, if no process
    has ended without being waited for."""
    return _sum(pid, lambda root: sum(map(int, _fields(root)[_TIMES])) * _TICK_S)


def memory_bytes(pid: int) -> float:
    """Resident memory of the tree; pages that several processes share count once."""
    return _sum(pid, _proportional_bytes)


def _sum(pid: int, of_one: Callable[[Path], float]) -> float:
    total = 0.0
    for one in (pid, *descendants_of(pid)):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            total += of_one(Path(f"/proc/{one}"))
    return total


def _fields(root: Path) -> list[str]:
    return (root / "stat").read_text().rpartition(")")[2].split()


def _proportional_bytes(root: Path) -> float:
    lines = (root / "smaps_rollup").read_text().splitlines()
    return float(sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")))
