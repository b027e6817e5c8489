"""How long the process at the other end of the link between supervisor and parent has said nothing, in its own time. Pure.

Time counts in polls, one every `POLL_EVERY_S` seconds: so a pause of the process that polls, or of the whole machine, counts as
one poll. Time in which the other process could run and did not get a core, or waits for a disk, does not count.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.policy.own_time import OwnTime, ProcessSample

POLL_EVERY_S = 0.5
FROZEN_S = 2.0  # a process that is silent for longer is killed and replaced, about 3 s after its last word
SUSPENDED_S = 0.5  # the same for one that is stopped from outside, where the kernel has not said so: 1.0 to 1.5 s
LOOK_EVERY_S, STOPPED_LOOKS = 0.1, 3  # a supervisor of which the kernel says that it was stopped is replaced after 0.3 s


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


class Stops:
    """Whether the other process stays stopped (SIGSTOP), from the moment on at which the kernel says that a child has changed.

    Time counts in looks, so a pause of the process that looks is one look. `sample` as in `Silence`.
    """

    def __init__(self, sample: Callable[[], ProcessSample | None]) -> None:
        self._sample = sample
        self._n_looks = 0  # in a row at which it was stopped
        self._looked_s = 0.0

    @property
    def wait_s(self) -> float:
        """Look again after this time at the latest."""
        return LOOK_EVERY_S if self._n_looks else POLL_EVERY_S

    def look(self, is_told: bool, now_s: float) -> bool:
        """Returns True when it has been stopped for `STOPPED_LOOKS` looks after the first one. `is_told`: it may have stopped
        just now."""
        is_due = now_s - self._looked_s >= LOOK_EVERY_S if self._n_looks else is_told
        if not is_due:
            return False
        self._looked_s = now_s
        sample = self._sample()
        self._n_looks = self._n_looks + 1 if sample is not None and sample.is_suspended else 0
        if self._n_looks <= STOPPED_LOOKS:
            return False
        self._n_looks = 0
        return True
