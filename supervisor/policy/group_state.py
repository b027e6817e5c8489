"""What the restart policy remembers of a group of children and of each living incarnation. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.policy.actions import Promote
from supervisor.policy.child_spec import Group
from supervisor.policy.history import History


@dataclass(eq=False)
class GroupState:
    """What the policy remembers of a group."""

    group: Group
    names: tuple[str, ...]
    dependents: tuple[str, ...]  # children of the groups that need this one, directly or through others
    partner: GroupState | None = None  # the other gang of a pair
    is_standby: bool = False
    history: History = field(default_factory=History)
    retired_s: float = 0.0  # the pause before the next start of a retired group

    @property
    def delay_s(self) -> float:
        """The pause before the next start."""
        return self.retired_s or self.history.delay_s


@dataclass
class Incarnation:
    """What the policy knows of a living incarnation."""

    number: int
    ready_s: float | None = None  # since when
    is_killed_with_group: bool = False  # killed because of another death: its own death is not counted
    is_ending: bool = False  # its process has begun to end by itself


def group_states(groups: tuple[Group, ...]) -> list[GroupState]:
    """The states of groups that have not been started yet. `groups` in start order, checked by `check_groups`."""
    states = {group.title: _group_state(group, groups) for group in groups}
    for state in states.values():
        if state.group.standby_of:
            state.is_standby, state.partner = True, states[state.group.standby_of]
            state.partner.partner = state
    return list(states.values())


def _group_state(group: Group, groups: tuple[Group, ...]) -> GroupState:
    """A group, with the children of all groups that need it, directly or through others."""
    needed, dependents = {group.title}, list[str]()
    for later in groups[groups.index(group) + 1 :]:
        if not needed.isdisjoint(later.needs):
            needed.add(later.title)
            dependents += [child.name for child in later.children]
    return GroupState(group, tuple(child.name for child in group.children), tuple(dependents))


def swap(active: GroupState, standby: GroupState) -> Promote:
    """Make the standby gang the active one, and the active gang the standby; returns the action for that."""
    active.is_standby, standby.is_standby = True, False
    return Promote(standby.names, active.names)
