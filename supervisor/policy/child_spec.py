"""Specifications of children and groups of children as data: names, restart strategy, budget, deadlines, dependencies.

`tree.py` makes them; `restart_policy.py` and `liveness.py` decide by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Strategy(Enum):
    """Which siblings must be restarted with a dead child of a group (the words are those of Erlang/OTP)."""

    ONE_FOR_ONE = "one_for_one"  # none: they work independently
    ONE_FOR_ALL = "one_for_all"  # all: they cannot work without each other


@dataclass(frozen=True)
class Budget:
    """When to give up on a group: after more than `restarts` restarts within `window_s` seconds; after `start_attempts`
    starts in a row that did not become ready, or `restart_attempts` once it has been ready. A first start that was killed from
    outside is tried again as often as the larger of both allows."""

    restarts: int
    window_s: float
    start_attempts: int
    restart_attempts: int

    @property
    def most_attempts(self) -> int:
        """How many attempts a first start may have, however they fail."""
        return max(self.start_attempts, self.restart_attempts)

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise ValueError(f"restarts: expected 0 or more, got {self.restarts}")
        if self.window_s <= 0:
            raise ValueError(f"window_s: expected more than 0 seconds, got {self.window_s}")
        for name in ("start_attempts", "restart_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")


@dataclass(frozen=True)
class Deadlines:
    """The longest that each phase of a child may take, in seconds."""

    hello_s: float  # from the spawn to Hello: interpreter and imports
    ready_s: float  # from Hello to Ready: weights, compilation, journals; each Loading message restarts the time
    frozen_s: float  # between two beats of a ready child, in its own time (see own_time.py)
    step_s: float  # one piece of work
    first_step_s: float  # the first piece of work after a start, which may compile
    stop_s: float  # from Stop to the exit
    suspended_s: float = 1.2  # for which a ready child may be stopped from outside
    continue_s: float = 0.0  # after so long without a beat such a child is told to continue (SIGCONT), once; 0: never


@dataclass(frozen=True)
class ChildSpec:
    """One process of the tree."""

    name: str  # "gateway/0", "worker/0.1"
    settings: bytes  # its section of the configuration, as JSON
    deadlines: Deadlines
    env: Mapping[str, str] = field(default_factory=dict)  # added to the supervisor's own environment
    descriptors: Mapping[str, int] = field(default_factory=dict)  # file descriptors that it inherits, by name
    warm_ups: tuple[str, ...] = ()  # what its spare process does in advance; see entrypoint.py


@dataclass(frozen=True)
class Unit:
    """Groups that do one piece of work together. Units of one service can stand in for each other."""

    service: str  # "replica", "gateway"
    index: int


@dataclass(frozen=True)
class Group:
    """Children that share a restart strategy and a budget, in start order.

    `needs`: titles of groups without which this one cannot work. When one of them dies, this group is restarted with it.
    `standby_of`: title of the gang whose standby this group is. When that gang dies, this one is promoted.
    `unit`: what it is a part of; None: nothing else does its work.
    `is_optional`: the server serves without it, only worse.
    `standby_pause_s`: how long the gang that dies waits, before it starts again as the standby, when this one is promoted.
    `patience_s`: for how long it is retired and started again, although nothing else does its work, before the server ends.
    """

    title: str
    why: str  # its task, and what its death means
    strategy: Strategy
    budget: Budget
    children: tuple[ChildSpec, ...]
    has_rendezvous: bool = False  # its children meet in a directory that is new for each incarnation
    needs: tuple[str, ...] = ()
    standby_of: str = ""
    unit: Unit | None = None
    is_optional: bool = False
    patience_s: float = 0.0
    standby_pause_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.children:
            raise ValueError(f"{self.title}: expected at least one child, got none")


def check_groups(groups: tuple[Group, ...]) -> None:
    """Check that groups, given in start order, fit together.

    Raises: ValueError when a title or a child's name stands twice, when a group needs one that does not start before it, or
    when a standby gang does not match its active gang.
    """
    earlier: dict[str, Group] = {}
    names: set[str] = set()
    for group in groups:
        if group.title in earlier:
            raise ValueError(f"title: expected each group once, got {group.title} twice")
        for child in group.children:
            if child.name in names:
                raise ValueError(f"name: expected each child once, got {child.name} twice")
            names.add(child.name)
        for title in group.needs:
            if title not in earlier:
                raise ValueError(f"{group.title}.needs: expected groups that start before it, got {title}")
        if group.standby_of:
            _check_standby(group, earlier)
        earlier[group.title] = group


def _check_standby(group: Group, earlier: Mapping[str, Group]) -> None:
    active = earlier.get(group.standby_of)
    if active is None or active.standby_of:
        raise ValueError(f"{group.title}.standby_of: expected an active gang that starts before it, got {group.standby_of}")
    if any(other.standby_of == group.standby_of for other in earlier.values()):
        raise ValueError(f"{group.title}.standby_of: expected one standby of {group.standby_of}, got two")
    if len(active.children) != len(group.children):
        expected = f"expected {len(active.children)} children, as many as {active.title}"
        raise ValueError(f"{group.title}.children: {expected}, got {len(group.children)}")
