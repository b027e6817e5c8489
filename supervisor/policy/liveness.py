"""Decides which children are late, frozen or stuck. Pure: the caller passes Progress and the time, and kills what it names.

    phase               must end within     otherwise the child is
    ------------------  ------------------  --------------------------------------------------------
    spawned             hello_s             late: it sent no Hello
    loading             ready_s             late: neither Ready nor another Loading came
    starting: runs      frozen_s            frozen: stopped from outside (SIGSTOP, a debugger)
    ready: next beat    continue_s          to be continued first, if it is suspended (SIGSTOP) and holds what only it has
                        suspended_s         frozen, if it is suspended: from the moment at which it was stopped, see below
                        frozen_s            frozen: its event loop does not run (a blocking call, an endless one)
    ready: same step    its own limit       stuck: its loop runs beside a step that does not end
                        step_s              the same, while the child has not learnt how long such a step takes
    ready: first step   first_step_s        the same; compilation and tuning are allowed for

Time in which a child was kept from running does not count for `frozen_s` and for a step's own limit: a child must not be killed
because other processes have the cores (see own_time.py). So once a child is suspicious its threads are looked at with each
check, and it must waste more of its own time before it is killed.

The kernel tells a supervisor at once when a child that it has started is stopped. Nobody knows when an adopted child, or one
that a debugger holds, was stopped: then it is `suspended_s` and a little more without a beat.

Time in which `overdue` was not called (a suspended machine, a stopped supervisor) does not count, and after a long pause every
deadline begins anew: a child must not be killed because its supervisor did not run. A child that is suspended then, and sends
no beat while all others send one, was stopped before the supervisor: it counts as frozen at once, or is continued first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from supervisor.policy.child_spec import Deadlines
from supervisor.policy.own_time import OwnTime, ProcessSample

_SUSPICIOUS = 0.5  # of frozen_s: after this silence a child's threads are looked at
_LONG = 0.25  # of a step's own limit: from then on only the child's own time counts
_STUCK_S = 0.5  # own time of a child after its step's own limit
_OVERSLEPT = 4.0  # a pause between checks that is this many times the usual one means that the supervisor did not run
_LONG_PAUSE_S = 2.0  # connections may break in a longer pause of the supervisor
_SINCE_BEAT_S = 0.3  # between the last beat of a child and its stop, where nobody knows when it was stopped
_UNHEARD = 0.6  # share of suspended_s within which a running child sends a beat to a supervisor that is new or goes on
_UNHEARD_ADOPTED = 0.3  # the same for a suspended child that was adopted: the supervisor before could not see it any more
_ON_ITS_WAY_S = 0.1  # a beat that comes so soon after the stop of its child was sent before


@dataclass(frozen=True)
class OverdueChild:
    """A child that must be killed; or, if `is_to_continue`, be told to continue."""

    name: str
    reason: str
    is_to_continue: bool = False


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
    suspended_s: float | None = None  # in watched time: since when it has been stopped from outside, if that was seen
    unheard_s: float | None = None  # in watched time: since a pause of the supervisor, or its start, without a beat after that
    unheard_share: float = _UNHEARD
    limit_s: float = 0.0  # the present step's own limit; 0: not known
    was_continued: bool = False  # since its last beat
    silence: OwnTime | None = None  # while it is suspiciously silent
    step_time: OwnTime | None = None  # while its step takes long for such a step


class Liveness:
    """Watches every living child. All times are seconds of one monotonic clock that the caller reads.

    `sample_of(name)` returns a sample of a child's threads. It is called with each check while that child is suspicious.
    """

    def __init__(self, check_every_s: float, sample_of: Callable[[str], ProcessSample | None] = lambda name: None) -> None:
        self._check_every_s, self._sample_of = check_every_s, sample_of
        self._last_check_s: float | None = None
        self._asleep_s = 0.0
        self._vitals: dict[str, _Vitals] = {}

    def spawned(self, name: str, deadlines: Deadlines, now_s: float, is_adopted: bool = False) -> None:
        """A process was started, or adopted. The first one begins the time that is watched: a supervisor may also be stopped
        before its first check."""
        if self._last_check_s is None:
            self._last_check_s = now_s
        watched_s = now_s - self._asleep_s
        self._vitals[name] = _Vitals(deadlines, watched_s)
        if is_adopted:
            self._vitals[name].unheard_s, self._vitals[name].unheard_share = watched_s, _UNHEARD_ADOPTED

    def loading(self, name: str, now_s: float) -> None:
        """The child sent Hello or Loading."""
        self._enter(name, _Phase.LOADING, now_s)

    def seen(self, name: str, is_suspended: bool, now_s: float) -> None:
        """A child was looked at: often while it is not ready, then when the kernel says that some child was stopped or goes on.
        `is_suspended`: it is stopped from outside."""
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

    def beat(self, name: str, steps: int, busy_s: float, now_s: float, limit_s: float = 0.0) -> None:
        """The child sent Progress. `busy_s`: for how long the present step has been running, 0 when idle. `limit_s`: how long
        it may run, as the child has learnt from such steps; 0 if it does not know."""
        vitals = self._vitals.get(name)
        if vitals is not None:
            if steps != vitals.steps or busy_s <= _LONG * limit_s or not limit_s:
                vitals.step_time = None
            vitals.since_s, vitals.steps, vitals.silence = now_s - self._asleep_s, steps, None
            vitals.busy_s, vitals.limit_s, vitals.was_continued = busy_s, limit_s, False
            vitals.unheard_s, vitals.unheard_share = None, _UNHEARD
            if vitals.suspended_s is not None and vitals.since_s - vitals.suspended_s > _ON_ITS_WAY_S:
                vitals.suspended_s = None

    def gone(self, name: str) -> None:
        """The child is dead, dying or stopping: it cannot be late any more."""
        self._vitals.pop(name, None)

    def overdue(self, now_s: float) -> list[OverdueChild]:
        """The children that must be killed or continued. To be called about every `check_every_s` seconds."""
        if self._last_check_s is not None:
            pause_s = now_s - self._last_check_s
            if pause_s > _OVERSLEPT * self._check_every_s:
                self._asleep_s += pause_s - self._check_every_s
                self._forgive(now_s - self._asleep_s, is_long=pause_s > _LONG_PAUSE_S)
        self._last_check_s = now_s
        watched_s = now_s - self._asleep_s
        found: list[OverdueChild] = []
        for name, vitals in self._vitals.items():
            if self._note_continued(name, vitals, watched_s):
                found.append(OverdueChild(name, "suspended", is_to_continue=True))
            elif reason := self._judge(name, vitals, watched_s):
                found.append(OverdueChild(name, reason))
        return found

    def _note_continued(self, name: str, vitals: _Vitals, watched_s: float) -> bool:
        """Returns True, once, for a suspended child that must be continued before it is killed, because nobody else has what it
        holds."""
        continue_s, is_ready = vitals.deadlines.continue_s, vitals.phase is _Phase.READY
        if not continue_s or not is_ready or vitals.was_continued:
            return False
        if watched_s - vitals.since_s <= continue_s and not _is_frozen_if_suspended(vitals, watched_s):
            return False
        sample = self._sample_of(name)
        vitals.was_continued = sample is not None and sample.is_suspended
        return vitals.was_continued

    def _forgive(self, watched_s: float, is_long: bool) -> None:
        """The supervisor did not run. After a long time connections may have to be made again: every child gets all of its time
        from now on."""
        for vitals in self._vitals.values():
            vitals.unheard_s = watched_s
            if is_long:
                vitals.since_s, vitals.suspended_s = watched_s, None
                vitals.silence = vitals.step_time = None

    def _judge(self, name: str, vitals: _Vitals, watched_s: float) -> str:
        """Why this child must be killed; empty when it must not."""
        d, age_s = vitals.deadlines, watched_s - vitals.since_s
        is_ready = vitals.phase is _Phase.READY
        if not is_ready and vitals.suspended_s is not None and watched_s - vitals.suspended_s > d.frozen_s:
            return f"frozen: it has not run for {d.frozen_s:g} s"
        if vitals.phase is _Phase.SPAWNED:
            return f"late: no Hello within {d.hello_s:g} s" if age_s > d.hello_s else ""
        if vitals.phase is _Phase.LOADING:
            return f"late: not ready and no Loading message for {d.ready_s:g} s" if age_s > d.ready_s else ""
        is_silent = age_s > min(_SUSPICIOUS * d.frozen_s, d.suspended_s) or _is_frozen_if_suspended(vitals, watched_s)
        is_long = vitals.busy_s > 0.0 and vitals.busy_s + age_s > _LONG * vitals.limit_s > 0.0
        if is_silent or is_long:
            sample = self._sample_of(name)
            if is_silent and (reason := _judge_silence(vitals, age_s, watched_s, sample)):
                return reason
            if is_long and (reason := _judge_step(vitals, age_s, watched_s, sample)):
                return reason
        limit_s = d.step_s if vitals.steps else d.first_step_s
        if vitals.busy_s and vitals.busy_s + age_s > limit_s:
            return f"stuck: step {vitals.steps + 1} has run for more than {limit_s:g} s"
        return ""

    def _enter(self, name: str, phase: _Phase, now_s: float) -> None:
        vitals = self._vitals.get(name)
        if vitals is not None:
            vitals.phase, vitals.since_s = phase, now_s - self._asleep_s


def _is_frozen_if_suspended(vitals: _Vitals, watched_s: float) -> bool:
    """True if a ready child has been silent or stopped for so long that it counts as frozen, should it be suspended."""
    limit_s = vitals.deadlines.suspended_s
    if vitals.unheard_s is not None and watched_s - vitals.unheard_s > vitals.unheard_share * limit_s:
        return True
    return vitals.suspended_s is not None and watched_s - vitals.suspended_s > limit_s


def _judge_silence(vitals: _Vitals, age_s: float, watched_s: float, sample: ProcessSample | None) -> str:
    limit_s = vitals.deadlines.frozen_s
    if sample is not None and sample.is_suspended:
        if _is_frozen_if_suspended(vitals, watched_s):
            return "frozen: it does not run"
        suspended_s = min(vitals.deadlines.suspended_s + _SINCE_BEAT_S, limit_s)
        if vitals.suspended_s is None and age_s > suspended_s:
            return f"frozen: no Progress for {suspended_s:g} s"
    if vitals.silence is None:
        vitals.silence = OwnTime(watched_s, sample)
        vitals.silence.own_s = age_s
    own_s = vitals.silence.add_sample(watched_s, sample)
    return f"frozen: no Progress for {limit_s:g} s" if own_s > limit_s else ""


def _judge_step(vitals: _Vitals, age_s: float, watched_s: float, sample: ProcessSample | None) -> str:
    if vitals.step_time is None:
        vitals.step_time = OwnTime(watched_s, sample)
        vitals.step_time.own_s = min(vitals.busy_s + age_s, vitals.limit_s)  # more was not watched
    if vitals.step_time.add_sample(watched_s, sample) <= vitals.limit_s + _STUCK_S or vitals.busy_s <= vitals.limit_s:
        return ""  # a beat that was lost on its way comes again: the child itself must have said that its step is over time
    return f"stuck: step {vitals.steps + 1} has run for more than {vitals.limit_s:.1f} s, many times as long as such steps take"
