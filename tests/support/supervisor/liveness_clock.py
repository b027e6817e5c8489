"""A child that is watched on a clock of its own, for tests of who is late, frozen or stuck."""

from __future__ import annotations

from supervisor.policy.child_spec import Deadlines
from supervisor.policy.liveness import Liveness
from supervisor.policy.own_time import ProcessSample
from tests.support.supervisor.trees import DEADLINES

NAME = "worker/0.0"
SUSPENDED = ProcessSample(is_suspended=True, waits_for_disk=False, run_delays_s={1: 0.0})
AT_WORK = ProcessSample(is_suspended=False, waits_for_disk=False, run_delays_s={1: 0.0})


class Clock:
    """A watcher that looks every tenth of a second, as it should."""

    def __init__(self, deadlines: Deadlines = DEADLINES) -> None:
        self.now_s = 0.0
        self.sample: ProcessSample | None = None  # what every look at the child shows
        self.starved = 0.0  # for this part of the time it waits for a core
        self.n_samples = self.n_continued = 0
        self.liveness = Liveness(0.1, self._sample_of)
        self.liveness.spawned(NAME, deadlines, 0.0)

    def _sample_of(self, name: str) -> ProcessSample | None:
        assert name == NAME
        self.n_samples += 1
        return ProcessSample(False, False, {1: self.now_s * self.starved}) if self.starved else self.sample

    def run(self, seconds: float, beat: tuple[int, float, float] | None = None) -> list[str]:
        """Let time pass, with a beat at each look if there is one; returns the reasons of all kills."""
        reasons = []
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            if beat is not None:
                steps, busy_s, limit_s = beat
                self.liveness.beat(NAME, steps, busy_s, self.now_s, limit_s)
            overdue = self.liveness.overdue(self.now_s)
            reasons += [late.reason for late in overdue if not late.is_to_continue]
            self.n_continued += sum(late.is_to_continue for late in overdue)
        return reasons


def ready_clock(deadlines: Deadlines = DEADLINES) -> Clock:
    """A child that is ready at 0."""
    clock = Clock(deadlines)
    clock.liveness.loading(NAME, 0.0)
    clock.liveness.became_ready(NAME, 0.0)
    return clock
