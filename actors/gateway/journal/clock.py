"""The journal's clock: seconds that go on from one process to the next, and that no change of the wall clock moves.

It is the kernel's clock since boot, which all processes share and which counts suspends. After a reboot, or in another time
namespace, it goes on from the last time that was recorded: how long the machine was down is not known without trusting the
wall clock, so that time is not counted.
"""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path

import msgspec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Life(msgspec.Struct, frozen=True, array_like=True):
    """What the first frame of each file says about the process that writes it."""

    boot: str  # the id of the machine's boot
    origin_s: float  # the clock since boot at time 0 of the journal
    next_number: int  # numbers from here on have not been used for requests


@lru_cache
def boot_id() -> str:
    """The id of the machine's present boot; "" where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def since_boot_s() -> float:
    """The kernel's clock since boot, suspends included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class JournalClock:
    """The time of one journal. A new journal begins at 0."""

    def __init__(self) -> None:
        self.boot, self.origin_s = boot_id(), since_boot_s()

    def go_on(self, life: Life | None, last_s: float) -> None:
        """Go on from an earlier process. `last_s`: the newest time in the journal."""
        now_s = since_boot_s()
        is_same = life is not None and life.boot == self.boot and bool(self.boot) and now_s - life.origin_s >= last_s
        self.origin_s = life.origin_s if is_same and life is not None else now_s - last_s

    def now_s(self) -> float:
        """Seconds since the journal was made."""
        return since_boot_s() - self.origin_s
