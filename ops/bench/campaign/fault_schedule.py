"""Which fault a campaign inflicts next: every actor in every phase meets every fault, in random order. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from supervisor.drill.faults import FaultKind, PlannedFault


class Phase(Enum):
    """What was going on when a process was harmed."""

    WAITING = "waiting"  # no request
    PREFILL = "prefill"  # at least one accepted stream had no text yet
    DECODE = "decode"  # all streams had text
    LOADING = "loading"  # the process was not ready yet, after a death
    RESTARTED = "restarted"  # it was just ready again
    DRAINING = "draining"


class Harm(Enum):
    """A kill; a pause that a process survives; a stop after which it is replaced, unless it continues before."""

    KILL = "kill"
    PAUSE = "pause"
    FREEZE = "freeze"

    def fault(self, name: str) -> PlannedFault:
        """The fault that does this to the process with this name."""
        if self is Harm.KILL:
            return PlannedFault(FaultKind.KILL, name)
        return PlannedFault(FaultKind.PAUSE, name, _PAUSE_S if self is Harm.PAUSE else _FREEZE_S)


_PAUSE_S, _FREEZE_S = 0.2, 4.0


@dataclass(frozen=True)
class ScheduledFault:
    """One fault in one phase. `role`: of the process; "supervisor" and "parent" are roles too."""

    role: str
    phase: Phase
    harm: Harm

    @property
    def pair(self) -> tuple[str, Phase]:
        """(role, phase): what `draw` covers first."""
        return self.role, self.phase

    @property
    def label(self) -> str:
        """The fault as text, for a row of the report."""
        return f"{self.harm.value} {self.role}, {self.phase.value}"


class FaultSchedule:
    """All faults of these roles and harms. A phase's faults are drawn in random order, and again when all were drawn; roles
    that were not drawn in this phase come first."""

    def __init__(self, roles: Sequence[str], harms: Sequence[Harm], chance: random.Random) -> None:
        self._roles, self._harms, self._chance = roles, harms, chance
        self._left: dict[Phase, list[ScheduledFault]] = {}
        self._drawn: set[tuple[str, Phase]] = set()

    def draw(self, phase: Phase) -> ScheduledFault:
        """The next fault of a phase."""
        faults = self._left.get(phase)
        if not faults:
            faults = self._left[phase] = self._all(phase)
            self._chance.shuffle(faults)
        fault = next((fault for fault in faults if fault.pair not in self._drawn), faults[0])
        faults.remove(fault)
        self._drawn.add(fault.pair)
        return fault

    def has(self, phase: Phase) -> bool:
        """Whether there are faults of this phase at all."""
        return bool(self._all(phase))

    def put_back(self, fault: ScheduledFault) -> None:
        """Take back a fault whose phase was over, or whose process did not exist. It is drawn again later."""
        self._left[fault.phase].append(fault)
        self._drawn.discard(fault.pair)

    def _all(self, phase: Phase) -> list[ScheduledFault]:
        return [
            ScheduledFault(role, phase, harm) for role in self._roles for harm in self._harms if is_possible(role, phase, harm)
        ]


def is_possible(role: str, phase: Phase, harm: Harm) -> bool:
    """False for what nobody promises to survive. Every role meets at least one harm in every phase.

    The parent of a supervisor waits ten seconds before it kills a frozen one, and nobody replaces a frozen parent. The next
    parent is the supervisor while it takes that place: if it dies then, both are dead at once, and the server ends.
    """
    if role == "parent" and phase is Phase.LOADING:
        return harm is Harm.PAUSE
    return role not in ("supervisor", "parent") or harm is not Harm.FREEZE


def coverage(faults: Sequence[ScheduledFault]) -> dict[str, dict[str, dict[str, int]]]:
    """How often each fault was inflicted: by role, then by phase, then by fault."""
    table: dict[str, dict[str, dict[str, int]]] = {}
    for fault, count in sorted(Counter(faults).items(), key=lambda item: item[0].label):
        table.setdefault(fault.role, {}).setdefault(fault.phase.value, {})[fault.harm.value] = count
    return table
