"""What the supervisor knows of one child: its spec, its present life, its last beat. No decisions."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from messages.lifecycle import Cause, ChildState, ChildStatus, Fault, MetricFamily, MetricSample, Peer, Progress
from supervisor.children.process import ChildProcess
from supervisor.policy.child_spec import ChildSpec
from supervisor.policy.states import LINKED_STATES, SERVING_STATES, next_child_state


@dataclass
class ChildRecord:
    """One child through all of its lives. `enter` changes its state."""

    spec: ChildSpec
    state: ChildState = ChildState.DEAD
    incarnation: int = 0
    process: ChildProcess | None = None
    endpoint: str = ""
    gang_dir: str = ""
    phase: str = ""  # how far its start has come, or why it ends
    lives: int = 0  # in this server
    is_announced: bool = False  # the other children were told that this incarnation can serve
    killed_for: Cause | None = None  # why this life was killed by us
    born_s: float = 0.0
    heard_s: float = 0.0
    last: Progress | None = None
    metrics: list[MetricFamily] = field(default_factory=list)  # as last said
    fault: str = ""  # why the last process that reported a fault ended, in one line
    fault_incarnation: int = 0  # of that process
    last_exit: str = ""  # how the last life ended
    died_s: float = 0.0  # when

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.spec.name

    @property
    def is_alive(self) -> bool:
        """Is there a process whose death is not proven?"""
        return self.process is not None and self.process.exit is None

    @property
    def is_serving(self) -> bool:
        """Can peers talk to it?"""
        return self.state in SERVING_STATES

    @property
    def is_reachable(self) -> bool:
        """Is there a link to its inbox?"""
        return self.state in LINKED_STATES

    @property
    def peer(self) -> Peer:
        """Its line in the address book."""
        return Peer(name=self.name, incarnation=self.incarnation, endpoint=self.endpoint)

    @property
    def has_reported_fault(self) -> bool:
        """True if the present process, or the last one, has said why it ends."""
        return self.incarnation > 0 and self.fault_incarnation == self.incarnation

    def note_fault(self, message: Fault) -> bool:
        """Keep why the present process ends; returns True when the process before it has said the same."""
        fault = f"{self.name} failed in {message.doing}: {message.reason}"
        is_repeated = fault == self.fault
        self.fault, self.fault_incarnation = fault, self.incarnation
        return is_repeated

    def enter(self, state: ChildState) -> None:
        """Change the state. Raises: AssertionError when it may not follow the present one."""
        self.state = next_child_state(self.name, self.state, state)

    def buried(self, how: str, now_s: float) -> None:
        """Its death is proven."""
        why = self.phase if self.state is ChildState.ENDING else self.fault if self.has_reported_fault else ""
        self.last_exit, self.died_s = (f"{how} ({why})" if why else how)[:256], now_s
        self.enter(ChildState.DEAD)
        self.phase = how

    def status(self, now_s: float, with_metrics: bool, restarts_left: int = 0, has_spare: bool = False) -> ChildStatus:
        """As an operator sees it."""
        last, is_alive = self.last, self.is_alive
        return ChildStatus(
            name=self.name,
            incarnation=self.incarnation,
            pid=self.process.pid if self.process is not None and is_alive else 0,
            state=self.state,
            phase=self.phase[:256],
            restarts=max(self.lives - 1, 0),
            uptime_s=now_s - self.born_s if is_alive else 0.0,
            beat_age_s=now_s - self.heard_s if is_alive else 0.0,
            steps=last.steps if last else 0,
            busy_s=last.busy_s if last else 0.0,
            statistics=last.statistics if last else {},
            metrics=[*self._families(), *self.metrics] if with_metrics else [],
            memory_bytes=resident_bytes(self.process.pid) if self.process is not None and is_alive else 0,
            restarts_left=restarts_left,
            has_spare=has_spare,
            last_exit=self.last_exit,
            last_exit_age_s=now_s - self.died_s if self.last_exit else 0.0,
        )

    def _families(self) -> list[MetricFamily]:
        """What only the supervisor can say of a child."""
        up, restarts = float(self.is_serving), float(max(self.lives - 1, 0))
        return [
            _family("tardigrade_up", "gauge", "1 while the actor can serve.", "", up),
            _family("tardigrade_restarts", "counter", "New lives since the server started.", "_total", restarts),
        ]


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now, what it shares with others included; 0 when it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _family(name: str, kind: str, documentation: str, suffix: str, value: float) -> MetricFamily:
    sample = MetricSample(suffix=suffix, labels={}, value=value)
    return MetricFamily(name=name, documentation=documentation, type=kind, samples=[sample])
