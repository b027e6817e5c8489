"""Which schedulers have work and do none of it, and for how long. Pure: the caller passes the time.

A scheduler tells once a second how many steps are done (`Holding`). It stands still while that number stays the same although
sequences are there. One without work never does, nor one that has just got some.
"""

from __future__ import annotations

from collections.abc import Mapping

_PAUSE_S = 5.0  # a longer time between two updates is a pause of this process, in which it has heard of no step


class Standstill:
    """All times are the monotonic clock. `limit_s`: how long work may wait before the scheduler counts as standing still."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._steps: dict[str, int] = {}
        self._since_s: dict[str, float] = {}  # by scheduler with work: its last step, or when its work began
        self._updated_s = 0.0

    def heard(self, scheduler: str, n_steps: int, now_s: float) -> None:
        """A scheduler has told how many steps are done."""
        if self._steps.get(scheduler) != n_steps:
            self._steps[scheduler] = n_steps
            if scheduler in self._since_s:
                self._since_s[scheduler] = now_s

    def update(self, load_by_name: Mapping[str, int], now_s: float) -> None:
        """Note which schedulers have work. Call it about once a second. `load_by_name`: the sequences at each living one."""
        paused_s = now_s - self._updated_s if now_s - self._updated_s > _PAUSE_S else 0.0
        self._updated_s = now_s
        since_s = self._since_s
        self._since_s = {name: min(since_s.get(name, now_s) + paused_s, now_s) for name, load in load_by_name.items() if load}
        self._steps = {name: n_steps for name, n_steps in self._steps.items() if name in load_by_name}

    def lasting(self, now_s: float) -> dict[str, float]:
        """The schedulers that stand still, and for how many seconds."""
        waits = {name: now_s - since_s for name, since_s in self._since_s.items()}
        return {name: wait_s for name, wait_s in waits.items() if wait_s >= self._limit_s}
