"""Decides which children are late, frozen or stuck. Pure: the caller passes Progress and the time, and kills by the verdicts.

    phase               must end within     otherwise the child is
    ------------------  ------------------  --------------------------------------------------------
    spawned             hello_s             late: it sent no Hello
    loading             ready_s             late: neither Ready nor another Loading came
    starting: runs           frozen_s            stopped from outside (SIGSTOP, a debugger)
    ready: next beat    frozen_s            frozen: its event loop does not run (SIGSTOP, a blocking call)
    ready: same step    step_s              stuck: its loop runs beside a step that does not end
    ready: first step   first_step_s        stuck, although compilation and tuning were allowed for

Time in which `check` was not called (a suspended machine, a stopped supervisor) does not count: a child must not be killed
because its supervisor did not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from supervisor.policy.child_spec import Deadlines

_OVERSLEPT = 4.0  # a pause between checks that is this many times the usual one means that the supervisor did not run


@dataclass(frozen=True)
class Verdict:
    """This child must be killed."""

    name: str
    reason: str


class _Phase(Enum):
    SPAWNED = auto()
    LOADING = auto()
    READY = auto()


@dataclass
class _Vitals:
    deadlines: Deadlines
    since_s: float  # in watched time: when the present phase began, or the last Progress came
    phase: _Phase = _Phase.SPAWNED
    steps: int = 0
    busy_s: float = 0.0
    suspended_s: float | None = None  # in watched time: since when a child that is not ready has been stopped from outside


class Liveness:
    """Watches every living child. All times are seconds of one monotonic clock that the caller reads."""

    def __init__(self, check_every_s: float) -> None:
        self._check_every_s = check_every_s
        self._last_check_s: float | None = None
        self._asleep_s = 0.0
        self._vitals: dict[str, _Vitals] = {}

    def spawned(self, name: str, deadlines: Deadlines, now_s: float) -> None:
        """A process was started."""
        self._vitals[name] = _Vitals(deadlines, now_s - self._asleep_s)

    def loading(self, name: str, now_s: float) -> None:
        """The child sent Hello or Loading."""
        self._enter(name, _Phase.LOADING, now_s)

    def seen(self, name: str, is_suspended: bool, now_s: float) -> None:
        """A child that is not ready was looked at. `is_suspended`: it is stopped from outside, so it cannot get ready."""
        vitals = self._vitals.get(name)
        if vitals is None:
            return
        if not is_suspended:
            vitals.suspended_s = None
        elif vitals.suspended_s is None:
            vitals.suspended_s = now_s - self._asleep_s

    def became_ready(self, name: str, now_s: float) -> None:
        """The child sent Ready."""
        self._enter(name, _Phase.READY, now_s)

    def beat(self, name: str, steps: int, busy_s: float, now_s: float) -> None:
        """The child sent Progress. `busy_s`: for how long the present step has been running, 0 when idle."""
        vitals = self._vitals.get(name)
        if vitals is not None:
            vitals.since_s, vitals.steps, vitals.busy_s = now_s - self._asleep_s, steps, busy_s

    def gone(self, name: str) -> None:
        """The child is dead, dying or stopping: give no more verdicts about it."""
        self._vitals.pop(name, None)

    def check(self, now_s: float) -> list[Verdict]:
        """Verdicts about all children. To be called about every `check_every_s` seconds."""
        if self._last_check_s is not None:
            pause_s = now_s - self._last_check_s
            if pause_s > _OVERSLEPT * self._check_every_s:
                self._asleep_s += pause_s - self._check_every_s
        self._last_check_s = now_s
        judged = ((name, _judge(vitals, now_s - self._asleep_s)) for name, vitals in self._vitals.items())
        return [Verdict(name, reason) for name, reason in judged if reason]

    def _enter(self, name: str, phase: _Phase, now_s: float) -> None:
        vitals = self._vitals.get(name)
        if vitals is not None:
            vitals.phase, vitals.since_s = phase, now_s - self._asleep_s


def _judge(vitals: _Vitals, watched_s: float) -> str:
    """Why this child must be killed; empty when it must not."""
    d, age_s = vitals.deadlines, watched_s - vitals.since_s
    if vitals.phase is not _Phase.READY and vitals.suspended_s is not None and watched_s - vitals.suspended_s > d.frozen_s:
        return f"frozen: it has not run for {d.frozen_s:g} s"
    if vitals.phase is _Phase.SPAWNED:
        return f"late: no Hello within {d.hello_s:g} s" if age_s > d.hello_s else ""
    if vitals.phase is _Phase.LOADING:
        return f"late: not ready and no Loading message for {d.ready_s:g} s" if age_s > d.ready_s else ""
    if age_s > d.frozen_s:
        return f"frozen: no Progress for {d.frozen_s:g} s"
    limit_s = d.step_s if vitals.steps else d.first_step_s
    if vitals.busy_s and vitals.busy_s + age_s > limit_s:
        return f"stuck: step {vitals.steps + 1} has run for more than {limit_s:g} s"
    return ""
