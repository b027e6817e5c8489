"""How much of a silence is a process's own: time in which it was kept from running does not count. Pure.

A process is silent because it is stopped, because it waits for something that does not come, because it computes without
end, or because other processes have the cores. The first three must end; a restart would only make the last one worse. The
kernel tells them apart: it counts for each thread the time for which it could run and did not get a core ("run delay"), and it
shows whether a thread is stopped, or waits for a disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MOST_DISK_WAIT_S = 30.0  # forgiven in all; a driver that never returns looks like a slow disk


@dataclass(frozen=True)
class ProcessSample:
    """What the threads of a process did at one time."""

    is_suspended: bool  # stopped from outside: SIGSTOP, a debugger
    waits_for_disk: bool  # a thread is in an uninterruptible wait
    run_delays_s: Mapping[int, float]  # by thread id: for how long since its start it could run and did not get a core


class OwnTime:
    """Adds up the time that a process has had for itself since `began_s`."""

    def __init__(self, began_s: float, sample: ProcessSample | None) -> None:
        self._at_s, self._before = began_s, sample
        self._disk_wait_s = 0.0
        self.own_s = 0.0

    def add_sample(self, now_s: float, sample: ProcessSample | None) -> float:
        """Add the time since the last sample; returns the sum. `sample`: None if nothing is known, then all time counts."""
        passed_s = now_s - self._at_s
        self.own_s += max(passed_s - self._kept_from_running_s(passed_s, sample), 0.0)
        self._at_s, self._before = now_s, sample
        return self.own_s

    def _kept_from_running_s(self, passed_s: float, sample: ProcessSample | None) -> float:
        if sample is None or self._before is None:
            return 0.0
        if sample.waits_for_disk and self._before.waits_for_disk and self._disk_wait_s < _MOST_DISK_WAIT_S:
            self._disk_wait_s += passed_s
            return passed_s
        # threads wait for each other: the most delayed one delays the process
        before = self._before.run_delays_s
        return max((delay_s - before.get(thread, delay_s) for thread, delay_s in sample.run_delays_s.items()), default=0.0)
