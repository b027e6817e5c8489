"""Who is late, frozen or stuck. Pure: beats and a clock go in, verdicts come out; the caller kills.

    turn of life        must end within     otherwise the child is
    ------------------  ------------------  --------------------------------------------------------
    spawned             hello_s             late: it never spoke
    welcomed            ready_s             late: it loads without any news
    ready: next beat    frozen_s            frozen: its event loop does not turn (SIGSTOP, a blocking call)
    ready: same step    step_s              stuck: its loop beats beside a step that does not end
    ready: first step   first_step_s        stuck, but compilation and tuning were allowed for

A watcher who was asleep must not judge: time in which `look` was not called (a suspended machine, a stopped supervisor) is
taken off every age.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.policy.child_spec import Deadlines

_OVERSLEPT = 4.0  # looks later than this many times the usual pause mean that the watcher did not run


@dataclass(frozen=True)
class Verdict:
    """This child must go."""

    name: str
    reason: str


@dataclass
class _Vitals:
    deadlines: Deadlines
    since_s: float  # in watched time: begin of the present turn, or the last beat
    turn: str = "spawned"
    steps: int = 0
    busy_s: float = 0.0


class Liveness:
    """Watches every living child. All times are seconds of one monotonic clock that the caller reads."""

    def __init__(self, look_every_s: float) -> None:
        self._look_every_s = look_every_s
        self._last_look_s: float | None = None
        self._asleep_s = 0.0
        self._vitals: dict[str, _Vitals] = {}

    def born(self, name: str, deadlines: Deadlines, now_s: float) -> None:
        """A process exists."""
        self._vitals[name] = _Vitals(deadlines, now_s - self._asleep_s)

    def spoke(self, name: str, now_s: float) -> None:
        """It said Hello, or has news of its loading."""
        self._turn(name, "welcomed", now_s)

    def became_ready(self, name: str, now_s: float) -> None:
        """It said Ready."""
        self._turn(name, "ready", now_s)

    def beat(self, name: str, steps: int, busy_s: float, now_s: float) -> None:
        """It said Progress."""
        vitals = self._vitals.get(name)
        if vitals is not None:
            vitals.since_s, vitals.steps, vitals.busy_s = now_s - self._asleep_s, steps, busy_s

    def gone(self, name: str) -> None:
        """It is dead, dying or stopping: no more verdicts."""
        self._vitals.pop(name, None)

    def look(self, now_s: float) -> list[Verdict]:
        """Judge everybody. To be called about every `look_every_s` seconds."""
        if self._last_look_s is not None:
            pause_s = now_s - self._last_look_s
            if pause_s > _OVERSLEPT * self._look_every_s:
                self._asleep_s += pause_s - self._look_every_s
        self._last_look_s = now_s
        judged = ((name, _judge(vitals, now_s - self._asleep_s)) for name, vitals in self._vitals.items())
        return [Verdict(name, reason) for name, reason in judged if reason]

    def _turn(self, name: str, turn: str, now_s: float) -> None:
        vitals = self._vitals.get(name)
        if vitals is not None:
            vitals.turn, vitals.since_s = turn, now_s - self._asleep_s


def _judge(vitals: _Vitals, watched_s: float) -> str:
    """Why this child must go, or nothing."""
    d, age_s = vitals.deadlines, watched_s - vitals.since_s
    if vitals.turn == "spawned":
        return f"late: no Hello within {d.hello_s:g} s" if age_s > d.hello_s else ""
    if vitals.turn == "welcomed":
        return f"late: not ready and no news for {d.ready_s:g} s" if age_s > d.ready_s else ""
    if age_s > d.frozen_s:
        return f"frozen: no beat for {d.frozen_s:g} s"
    limit_s = d.step_s if vitals.steps else d.first_step_s
    if vitals.busy_s and vitals.busy_s + age_s > limit_s:
        return f"stuck: step {vitals.steps + 1} has run for more than {limit_s:g} s"
    return ""
