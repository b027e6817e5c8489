"""The journal's clock: seconds that go on from one process to the next, and that no change of the wall clock moves.

It is the kernel's clock since boot, which all processes share and which counts suspends. After a reboot, or in another time
namespace, it goes on from the last time that was recorded: how long the machine was down is not known without trusting the
wall clock, so that time is not counted.
"""

from __future__ import annotations

import time

import msgspec

from messages.ids import boot_id


class SegmentHeader(msgspec.Struct, frozen=True, array_like=True):
    """What the first frame of each file says about the process that writes it."""

    boot: str  # the id of the machine's boot
    origin_s: float  # the clock since boot at time 0 of the journal
    next_number: int  # numbers from here on have not been used for requests


def since_boot_s() -> float:
    """The kernel's clock since boot, suspends included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class JournalClock:
    """The time of one journal. A new journal begins at 0."""

    def __init__(self) -> None:
        self.boot, self.origin_s = boot_id(), since_boot_s()

    def go_on(self, header: SegmentHeader | None, last_s: float) -> None:
        """Go on from an earlier process. `last_s`: the newest time in the journal."""
        now_s = since_boot_s()
        is_same = header is not None and header.boot == self.boot and bool(self.boot) and now_s - header.origin_s >= last_s
        self.origin_s = header.origin_s if is_same and header is not None else now_s - last_s

    def now_s(self) -> float:
        """Seconds since the journal was made."""
        return since_boot_s() - self.origin_s
