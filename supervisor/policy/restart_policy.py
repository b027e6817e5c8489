"""The restart decision: events of children in, actions out. Pure: no process, no socket, no clock of its own.

    event                                action
    -----------------------------------  ------------------------------------------------------------------------
    a child died                         ONE_FOR_ONE: start it again
                                         ONE_FOR_ALL, REST_FOR_ONE: kill the siblings that must go too; when the last
                                         of them is *proven* dead, start them all, in order, as new lives
    a life that is over died again       nothing (stale news)
    too many restarts in the window      give up, with the exit status that says so
    a start that cannot succeed          give up at once: the same configuration would fail again
    stopping                             nothing: deaths are wanted now

A restart is immediate, unless lives are short: each further one in a row that was not ready for a second doubles the pause.
A tree that is being shot at is not one that cannot live: kills from outside, once a group has been ready, count only against
the number of restarts in the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.policy.child_spec import Group, Strategy

EXIT_START_FAILED = 3
EXIT_BUDGET_SPENT = 4
_FIRST_DELAY_S = 0.02
_LONGEST_DELAY_S = 2.0
_SHORT_LIFE_S = 1.0


@dataclass(frozen=True)
class Kill:
    """End this life now; its death comes back as an event."""

    name: str
    reason: str


@dataclass(frozen=True)
class Start:
    """Begin new lives, in this order, after a pause."""

    names: tuple[str, ...]
    delay_s: float


@dataclass(frozen=True)
class GiveUp:
    """Stop the whole tree and exit with this status."""

    exit_status: int
    reason: str
    name: str  # whose death it was


Action = Kill | Start | GiveUp


@dataclass
class _GroupLife:
    """What the policy remembers of a group."""

    group: Group
    names: tuple[str, ...]
    recovering: set[str] = field(default_factory=set)  # dead or dying, to be started together
    restarts_s: list[float] = field(default_factory=list)  # times of restarts inside the window
    failed_starts: int = 0  # in a row
    short_lives: int = 0  # in a row
    was_ready: bool = False  # all of it, at least once


@dataclass
class _Life:
    incarnation: int
    ready_s: float | None = None  # since when
    is_condemned: bool = False  # killed for a sibling's death: its own death is no further incident


class RestartPolicy:
    """Decides what follows a death. `groups` in start order."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self._group_of: dict[str, _GroupLife] = {}
        self._alive: dict[str, _Life] = {}
        self._is_stopping = False
        for group in groups:
            life = _GroupLife(group, tuple(child.name for child in group.children))
            for name in life.names:
                if name in self._group_of:
                    raise ValueError(f"name: expected each child once, got {name} twice")
                self._group_of[name] = life

    def started(self, name: str, incarnation: int) -> None:
        """A new life exists."""
        self._alive[name] = _Life(incarnation)

    def became_ready(self, name: str, incarnation: int, now_s: float) -> None:
        """A life can serve."""
        life = self._alive.get(name)
        if life is None or life.incarnation != incarnation:
            return
        life.ready_s = now_s
        group = self._group_of[name]
        if all(sibling in self._alive and self._alive[sibling].ready_s is not None for sibling in group.names):
            group.was_ready, group.failed_starts = True, 0

    def restarts_left(self, name: str, now_s: float) -> int:
        """How many deaths more, if they came at once, the group of this child may have."""
        group = self._group_of[name]
        budget = group.group.budget
        return max(budget.restarts - sum(now_s - at < budget.window_s for at in group.restarts_s), 0)

    def stopping(self) -> None:
        """From now on deaths are wanted."""
        self._is_stopping = True

    def died(
        self, name: str, incarnation: int, now_s: float, cannot_succeed: str = "", is_foreign: bool = False
    ) -> list[Action]:
        """A life is proven dead. `cannot_succeed` says why a further start would fail in the same way; `is_foreign`, that
        somebody else killed it (an operator, the kernel out of memory): no sign that it cannot live."""
        life = self._alive.get(name)
        if life is None or life.incarnation != incarnation:
            return []
        del self._alive[name]
        if self._is_stopping:
            return []
        if cannot_succeed:
            return [GiveUp(EXIT_START_FAILED, f"{name}: {cannot_succeed}", name)]
        group = self._group_of[name]
        if not life.is_condemned:
            refusal = self._charge(group, name, life, now_s, is_foreign)
            if refusal is not None:
                return [refusal]
        return self._recover(group, name)

    def _charge(self, group: _GroupLife, name: str, life: _Life, now_s: float, is_foreign: bool) -> GiveUp | None:
        """Put one incident on the group's account; the refusal when it is overdrawn."""
        budget = group.group.budget
        group.restarts_s = [at for at in group.restarts_s if now_s - at < budget.window_s]
        group.restarts_s.append(now_s)
        if not (is_foreign and group.was_ready):
            group.failed_starts += life.ready_s is None
            is_short = life.ready_s is None or now_s - life.ready_s < _SHORT_LIFE_S
            group.short_lives = group.short_lives + 1 if is_short else 0
        if group.failed_starts >= (budget.restart_attempts if group.was_ready else budget.start_attempts):
            status = EXIT_BUDGET_SPENT if group.was_ready else EXIT_START_FAILED
            return GiveUp(status, f"{name}: died {group.failed_starts} times in a row before it was ready", name)
        if len(group.restarts_s) > budget.restarts:
            said = f"expected at most {budget.restarts} restarts of {group.group.title} in {budget.window_s:g} s"
            return GiveUp(EXIT_BUDGET_SPENT, f"{name}: {said}, this would be one more", name)
        return None

    def _recover(self, group: _GroupLife, name: str) -> list[Action]:
        """Kill who must go too, or start them all when the last is dead."""
        group.recovering |= self._goes_down_with(group, name)
        actions: list[Action] = []
        for sibling in group.names:
            other = self._alive.get(sibling)
            if sibling in group.recovering and other is not None and not other.is_condemned:
                other.is_condemned = True
                actions.append(Kill(sibling, f"{name} of the same group died"))
        if not any(sibling in self._alive for sibling in group.recovering):
            names = tuple(sibling for sibling in group.names if sibling in group.recovering)
            group.recovering = set()
            actions.append(Start(names, self._delay_s(group)))
        return actions

    @staticmethod
    def _goes_down_with(group: _GroupLife, name: str) -> set[str]:
        match group.group.strategy:
            case Strategy.ONE_FOR_ONE:
                return {name}
            case Strategy.ONE_FOR_ALL:
                return set(group.names)
            case Strategy.REST_FOR_ONE:
                return set(group.names[group.names.index(name) :])

    @staticmethod
    def _delay_s(group: _GroupLife) -> float:
        doublings = group.short_lives - 2
        return 0.0 if doublings < 0 else min(_FIRST_DELAY_S * 2.0**doublings, _LONGEST_DELAY_S)
