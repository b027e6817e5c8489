"""How long the process at the other end of the link between supervisor and parent has said nothing, in its own time. Pure.

Time counts in polls, one every `POLL_EVERY_S` seconds: so a pause of the process that polls, or of the whole machine, counts as
one poll. Time in which the other process could run and did not get a core, or waits for a disk, does not count.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.policy.own_time import OwnTime, ProcessSample

POLL_EVERY_S = 0.5
FROZEN_S = 2.0  # a process that is silent for longer is killed and replaced, about 3 s after its last word
SUSPENDED_S = 0.5  # the same for a supervisor that is stopped from outside: 1.0 to 1.5 s after its last word


class Silence:
    """Silence from the construction on. `sample` returns a sample of the process's threads; None: nothing is known of them."""

    def __init__(self, sample: Callable[[], ProcessSample | None]) -> None:
        self._sample = sample
        self._own: OwnTime | None = None
        self._polled_s = 0.0
        self.is_suspended = False  # at the last poll

    def heard(self) -> None:
        """The process has said something."""
        self._own = None

    def poll(self) -> float:
        """Take a sample; returns for how many seconds the process has been silent. Call it every `POLL_EVERY_S` seconds."""
        self._polled_s += POLL_EVERY_S
        sample = self._sample()
        self.is_suspended = sample is not None and sample.is_suspended
        if self._own is None:
            self._own = OwnTime(self._polled_s, sample)
        return self._own.add_sample(self._polled_s, sample)
