"""The state of one child as the supervisor knows it: its spec, its present incarnation, its last Progress. No decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import get_args

from messages.lifecycle.lifecycle import Cause, Fault, MetricFamily, MetricSample, Peer, PeerDown, Progress
from messages.lifecycle.tree import ChildState, ChildStatus
from messages.wire.message import MAX_SHORT_CHARACTERS
from supervisor.children.process import ChildProcess
from supervisor.directories.register import ChildFacts
from supervisor.policy.child_spec import ChildSpec
from supervisor.policy.states import LINKED_STATES, SERVING_STATES, STARTING_STATES, next_child_state

_CAUSES: tuple[Cause, ...] = get_args(Cause)


@dataclass
class ChildRecord:
    """One child through all of its incarnations. `enter` changes its state. Times are seconds of the monotonic clock."""

    spec: ChildSpec
    state: ChildState = ChildState.DEAD
    incarnation: int = 0
    process: ChildProcess | None = None
    endpoint: str = ""
    gang_dir: str = ""
    phase: str = ""  # how far its start has come, or why it ends or cannot start
    phases: list[tuple[str, float]] = field(default_factory=list)  # of its start: what it does, and when that began
    n_starts: int = 0  # in this server
    is_announced: bool = False  # the other children were told that this incarnation can serve
    killed_for: Cause | None = None  # why the supervisor killed this incarnation
    started_s: float = 0.0
    heard_s: float = 0.0  # when its last message came
    last: Progress | None = None
    metrics: list[MetricFamily] = field(default_factory=list)  # the newest ones that it has sent
    fault: str = ""  # why the last incarnation that reported a fault ended, in one line
    fault_incarnation: int = 0  # its number
    last_death: PeerDown | None = None  # the newest one that is known
    last_exit: str = ""  # how the last incarnation ended
    died_s: float = 0.0  # when
    replaced_incarnation: int = 0  # the newest one that ended because it was asked to; its end is no death
    n_deaths: Counter[Cause] = field(default_factory=Counter)  # that this supervisor has seen

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.spec.name

    @property
    def is_alive(self) -> bool:
        """True while there is a process whose death is not proven."""
        return self.process is not None and self.process.exit is None

    @property
    def is_serving(self) -> bool:
        """True while peers may send to it."""
        return self.state in SERVING_STATES

    @property
    def is_starting(self) -> bool:
        """True while it has a process that is not ready yet."""
        return self.state in STARTING_STATES

    @property
    def is_reachable(self) -> bool:
        """True while the supervisor has a link to its inbox."""
        return self.state in LINKED_STATES

    @property
    def peer(self) -> Peer:
        """Its entry in the address books of other children."""
        return Peer(name=self.name, incarnation=self.incarnation, endpoint=self.endpoint)

    @property
    def has_reported_fault(self) -> bool:
        """True if the newest incarnation has reported why it ends."""
        return self.incarnation > 0 and self.fault_incarnation == self.incarnation

    def note_fault(self, message: Fault) -> bool:
        """Keep the fault of the present incarnation. Returns True if the last reported fault was the same."""
        fault = f"{self.name} failed in {message.doing}: {message.reason}"
        is_repeated = fault == self.fault
        self.fault, self.fault_incarnation = fault, self.incarnation
        return is_repeated

    def note_loading(self, phase: str, fraction: float, now_s: float) -> None:
        """The process says how far its start has come."""
        self.phase, self.heard_s = f"{phase} {fraction:.0%}", now_s
        if not self.phases or self.phases[-1][0] != phase:
            self.phases.append((phase, now_s))

    def phases_s(self, now_s: float) -> dict[str, float]:
        """How long each phase of its start has taken, if it has ended now."""
        ends = [*self.phases[1:], ("", now_s)]
        return {phase: round(end_s - began_s, 3) for (phase, began_s), (_, end_s) in zip(self.phases, ends, strict=False)}

    def enter(self, state: ChildState) -> None:
        """Change the state. Raises: AssertionError when it may not follow the present one."""
        self.state = next_child_state(self.name, self.state, state)

    def begin_incarnation(self, incarnation: int, process: ChildProcess, gang_dir: str, now_s: float) -> None:
        """A process is about to become the next incarnation of this child."""
        self.enter(ChildState.STARTING)
        self.incarnation, self.n_starts = incarnation, self.n_starts + 1
        self.process, self.gang_dir = process, gang_dir
        self.phase, self.endpoint = "", ""
        self.phases, self.last, self.metrics = [], None, []
        self.killed_for, self.is_announced = None, False
        self.started_s = self.heard_s = now_s

    def adopt(self, facts: ChildFacts, process: ChildProcess, endpoint: str, now_s: float) -> None:
        """A process of an earlier supervisor is the present incarnation of this child."""
        self.enter(ChildState.ADOPTED)
        self.incarnation, self.n_starts = facts.incarnation, facts.n_starts
        self.process, self.gang_dir, self.endpoint = process, facts.gang_dir, endpoint
        self.killed_for, self.is_announced = facts.killed_for, facts.is_announced
        if facts.predecessor_died_of is not None:
            self.last_death = PeerDown(name=self.name, incarnation=facts.incarnation - 1, cause=facts.predecessor_died_of)
        self.phase = ""
        self.started_s, self.heard_s = facts.started_s or now_s, now_s

    @property
    def facts(self) -> ChildFacts:
        """What the next supervisor must know of the present incarnation."""
        known = (self.incarnation, self.gang_dir, self.n_starts, self.is_announced, self.killed_for)
        before = self.last_death.cause if self.last_death is not None else None
        return ChildFacts(self.name, *known, predecessor_died_of=before, started_s=self.started_s)

    def end_incarnation(self, how: str, cause: Cause, now_s: float) -> None:
        """The death of the present incarnation is proven. `how`: its exit status in words."""
        self.last_death = PeerDown(name=self.name, incarnation=self.incarnation, cause=cause)
        self.n_deaths[cause] += 1
        why = self.phase if self.state is ChildState.ENDING else self.fault if self.has_reported_fault else ""
        self.last_exit, self.died_s = (f"{how} ({why})" if why else how)[:MAX_SHORT_CHARACTERS], now_s
        self.enter(ChildState.DEAD)
        self.phase = how

    def status(
        self,
        now_s: float,
        with_metrics: bool,
        restarts_left: int = 0,
        has_spare: bool = False,
        retired: str = "",
        cordon: str = "",
    ) -> ChildStatus:
        """This child in a status report."""
        last, is_alive = self.last, self.is_alive
        return ChildStatus(
            name=self.name,
            incarnation=self.incarnation,
            pid=self.process.pid if self.process is not None and is_alive else 0,
            state=self.state,
            phase=self.phase[:MAX_SHORT_CHARACTERS],
            restarts=max(self.n_starts - 1, 0),
            uptime_s=now_s - self.started_s if is_alive else 0.0,
            beat_age_s=now_s - self.heard_s if is_alive else 0.0,
            steps=last.steps if last else 0,
            busy_s=last.busy_s if last else 0.0,
            statistics=last.statistics if last else {},
            metrics=[*self._families(retired), *self.metrics] if with_metrics else [],
            memory_bytes=self.process.resident_bytes() if self.process is not None and is_alive else 0,
            restarts_left=restarts_left,
            has_spare=has_spare,
            last_exit=self.last_exit,
            last_exit_age_s=now_s - self.died_s if self.last_exit else 0.0,
            retired=retired[:MAX_SHORT_CHARACTERS],
            cordon=cordon,
        )

    def _families(self, retired: str) -> list[MetricFamily]:
        """The metric families that only the supervisor can measure."""
        up, restarts = float(self.is_serving), float(max(self.n_starts - 1, 0))
        return [
            _family("tardigrade_up", "gauge", "1 while the actor can serve.", "", up),
            _family("tardigrade_retired", "gauge", "1 while the server goes on without the actor.", "", float(bool(retired))),
            _family("tardigrade_restarts", "counter", "Restarts since the server started.", "_total", restarts),
            self._deaths(),
        ]

    def _deaths(self) -> MetricFamily:
        """All causes from the start on: Prometheus sees no increase in a counter that begins with 1."""
        what = "Deaths by cause, since the supervisor started; messages/lifecycle/lifecycle.py says what the causes are."
        samples = [MetricSample("_total", {"cause": cause}, float(self.n_deaths[cause])) for cause in _CAUSES]
        return MetricFamily(name="tardigrade_deaths", documentation=what, type="counter", samples=samples)


def _family(name: str, kind: str, documentation: str, suffix: str, value: float) -> MetricFamily:
    sample = MetricSample(suffix=suffix, labels={}, value=value)
    return MetricFamily(name=name, documentation=documentation, type=kind, samples=[sample])
