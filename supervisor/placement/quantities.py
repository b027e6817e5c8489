"""Numbers of things, bytes of memory and versions of devices as plans and errors write them."""

from __future__ import annotations

from gpu_workers.runner.memory_estimate import GIB


def counted(n: int, noun: str) -> str:
    """A number with its noun: "1 rank", "2 ranks"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def gib_text(n_bytes: int) -> str:
    """Bytes as a number of GiB, with one decimal below 100."""
    gib = n_bytes / GIB
    return f"{gib:.1f}" if gib < 100 else f"{gib:.0f}"


def dotted(capability: tuple[int, int]) -> str:
    """A compute capability: "9.0"."""
    return f"{capability[0]}.{capability[1]}"
