"""Decides what to do when a child dies: takes events of children, returns actions. Pure: the caller passes the time.

    event                                    actions
    ---------------------------------------  --------------------------------------------------------------------
    a child of a ONE_FOR_ONE group died      start it again
    a child of a ONE_FOR_ALL group died      kill its siblings; when the last of them is *proven* dead, start them all
    a group died that others need            kill those groups too; start all of them together, in start order, when the
                                             last is proven dead
    the active gang of a pair died and its   kill the rest of the gang; when the last is proven dead, promote the standby
    standby is ready                         gang, and start the dead gang again as the new standby
    a standby gang becomes ready while the   promote it; the active gang, whose death is proven, becomes the standby
    active one is starting again
    too many restarts in the window          retire the group: start it again after a long pause; give up, with the exit
                                             status that says so, if the server cannot serve without it (`retirement.py`)
    a start that cannot succeed              the same, at once: the same configuration would fail again
    stopping; a death that was reported      nothing

A restart is immediate, unless incarnations are short: each further one in a row that was not ready for a second doubles the
pause. Once a group has been ready, kills from outside (an operator's SIGKILL, the kernel out of memory) count only against
`restarts` within `window_s`, not against `restart_attempts` and not towards the pause. Before, an operator's kills do not count
against `start_attempts`; the kernel's do, because a server that needs more memory than there is shall say so soon.

The strategies are those of Erlang/OTP supervisors. Dependencies between groups replace OTP's rest_for_one.
"""

from __future__ import annotations

from collections.abc import Iterable

from messages.outcomes import ExitCode
from supervisor.policy.actions import Action, GiveUp, Kill, Promote, Retire, Start
from supervisor.policy.child_spec import Group, Strategy, check_groups
from supervisor.policy.group_state import GroupState, Incarnation, group_states, swap
from supervisor.policy.history import Memory
from supervisor.policy.retirement import Retirement


class RestartPolicy:
    """Decides what follows a death. `groups` in start order.

    Raises: ValueError when the groups do not fit together, see `check_groups`.
    """

    def __init__(self, groups: tuple[Group, ...]) -> None:
        check_groups(groups)
        self._group_of = {name: state for state in group_states(groups) for name in state.names}
        self._order = tuple(self._group_of)
        self._alive: dict[str, Incarnation] = {}
        self._is_awaited = set(self._order)  # their start was decided and has not happened yet
        self._recoveries: list[set[str]] = []  # disjoint sets of dead or dying children, each to be started together
        self._retirement = Retirement(groups)
        self._is_stopping = False

    def started(self, name: str, incarnation: int) -> None:
        """A new incarnation exists."""
        self._alive[name] = Incarnation(incarnation)
        self._is_awaited.discard(name)

    def became_ready(self, name: str, incarnation: int, now_s: float) -> list[Action]:
        """An incarnation can serve. Returns what to do: a standby gang that becomes ready while the active gang is starting
        again takes over from it."""
        present = self._alive.get(name)
        if present is None or present.number != incarnation:
            return []
        present.ready_s = now_s
        group = self._group_of[name]
        if not self._is_ready(group):
            return []
        group.history.became_ready()
        group.retired_s = 0.0
        self._retirement.became_ready(group.group.title)
        active = group.partner
        if active is None or not group.is_standby or not active.history.was_ready:
            return []
        return [] if self._is_ready(active) or self._is_dying(active) else [swap(active, group)]

    def restarts_left(self, name: str, now_s: float) -> int:
        """How many more deaths the group of this child may have, if they came at once."""
        group = self._group_of[name]
        return group.history.restarts_left(group.group.budget, now_s)

    def retired(self, name: str) -> str:
        """Why the group of this child is retired; "" if it is not."""
        return self._retirement.reason(self._group_of[name].group.title)

    def is_standby(self, name: str) -> bool:
        """True if this child belongs to the standby gang of a pair now."""
        return self._group_of[name].is_standby

    def has_successor(self, name: str) -> bool:
        """True if a standby gang is ready to take over from the gang of this child."""
        group = self._group_of[name]
        return group.partner is not None and not group.is_standby and self._is_ready(group.partner)

    def active_of_standby(self) -> dict[str, str]:
        """By the title of each gang that is on standby now: the active gang of its pair."""
        states = dict.fromkeys(self._group_of.values())
        return {state.group.title: state.partner.group.title for state in states if state.is_standby and state.partner}

    def expect(self, names: Iterable[str]) -> None:
        """These children are ended to replace them: they are restarted and not counted."""
        for name in names:
            if (present := self._alive.get(name)) is not None:
                present.is_killed_with_group = True

    def expects_end_of(self, name: str) -> bool:
        """True if this child ends because it, or its group, is replaced."""
        present = self._alive.get(name)
        return present is not None and present.is_killed_with_group

    def resume(self, has_served: bool) -> None:
        """Go on where an earlier supervisor died. `has_served`: every group has been ready before."""
        for group in self._group_of.values():
            group.history.was_ready = group.history.was_ready or has_served

    def memory(self) -> Memory:
        """What the next supervisor must know to go on with the same budgets."""
        states = {state.group.title: state.history for state in self._group_of.values()}
        standbys = [state.group.title for state in dict.fromkeys(self._group_of.values()) if state.is_standby]
        return Memory(states, self._retirement.retired, standbys)

    def recall(self, memory: Memory) -> None:
        """Go on with the budgets of an earlier supervisor, and with the gangs that were active."""
        for state in self._group_of.values():
            state.history = memory.histories.get(state.group.title, state.history)
            if state.partner is not None and memory.standbys is not None:
                state.is_standby = state.group.title in memory.standbys
        self._retirement.retired = dict(memory.retired)

    def stopping(self) -> None:
        """From now on deaths are expected: they lead to no action."""
        self._is_stopping = True

    def ending(self, name: str, incarnation: int) -> list[Action]:
        """The process of an incarnation has begun to end. Returns the kills of the others of its group, which its proven death
        would lead to: so all of them end at the same time.
        """
        present, group = self._alive.get(name), self._group_of[name]
        if self._is_stopping or present is None or present.number != incarnation or present.is_killed_with_group:
            return []
        present.is_ending = True
        return self._kill_with_group(group.names, name) if group.group.strategy is Strategy.ONE_FOR_ALL else []

    def died(
        self, name: str, incarnation: int, now_s: float, cannot_succeed: str = "", is_foreign: bool = False
    ) -> list[Action]:
        """An incarnation is proven dead. Returns what to do.

        Args:
            cannot_succeed: why another start would fail in the same way; "" if it may succeed.
            is_foreign: True if it was killed from outside, so its death is no sign that it cannot run.
        """
        ended = self._alive.get(name)
        if ended is None or ended.number != incarnation:
            return []
        del self._alive[name]
        if self._is_stopping:
            return []
        group = self._group_of[name]
        refusal = None
        if cannot_succeed and not group.history.was_ready:
            refusal = GiveUp(ExitCode.NOT_STARTED, cannot_succeed, name)
            if not self._another_was_ready(group):
                return [refusal]
        elif not ended.is_killed_with_group:
            refusal = self._charge(group, name, ended, now_s, is_foreign)
        if refusal is None:
            return self._recover(group, name)
        pause_s = self._retirement.retire(group.group, refusal.reason, now_s, group.history.was_ready)
        if pause_s is None:
            return [refusal]
        group.retired_s = pause_s
        return [Retire(group.group.title, refusal.reason, pause_s), *self._recover(group, name)]

    def _another_was_ready(self, group: GroupState) -> bool:
        """True if another unit of the same service has been ready, so the configuration can be used."""
        unit = group.group.unit
        states = [state for state in self._group_of.values() if state.group.unit not in (None, unit)]
        others = {s.group.unit for s in states if s.group.unit and unit and s.group.unit.service == unit.service}
        return any(all(s.history.was_ready for s in states if s.group.unit == other) for other in others)

    def _charge(self, group: GroupState, name: str, ended: Incarnation, now_s: float, is_foreign: bool) -> GiveUp | None:
        """Count one death against the group's budget; returns the refusal when the budget is spent."""
        budget, history = group.group.budget, group.history
        history.note_death(budget, ended.ready_s, now_s, is_foreign)
        self._retirement.note_death(group.group.title, 0.0 if ended.ready_s is None else now_s - ended.ready_s)
        if history.has_failed_to_start(budget):
            status = ExitCode.BUDGET_SPENT if history.was_ready else ExitCode.NOT_STARTED
            return GiveUp(status, f"{name}: died {history.failed_starts} times in a row before it was ready", name)
        if history.has_died_too_often(budget):
            expected = f"expected at most {budget.restarts} restarts of {group.group.title} in {budget.window_s:g} s"
            return GiveUp(ExitCode.BUDGET_SPENT, f"{name}: {expected}, this would be one more", name)
        return None

    def _recover(self, group: GroupState, name: str) -> list[Action]:
        """Kill all children that must be restarted with this one; once all of them are dead, start them."""
        siblings = group.names if group.group.strategy is Strategy.ONE_FOR_ALL else (name,)
        recovery = {name, *siblings, *group.dependents} - self._is_awaited
        for other in [other for other in self._recoveries if not recovery.isdisjoint(other)]:
            self._recoveries.remove(other)
            recovery |= other
        actions = self._kill_with_group(recovery, name)
        if any(victim in self._alive for victim in recovery):
            self._recoveries.append(recovery)
            return actions
        self._is_awaited |= recovery
        promotions = self._promotions(recovery)
        delays_s = [self._group_of[victim].delay_s for victim in recovery]
        delays_s += [self._group_of[promoted.names[0]].group.standby_pause_s for promoted in promotions]
        return [*actions, *promotions, Start(self._in_order(recovery), max(delays_s))]

    def _kill_with_group(self, victims: Iterable[str], name: str) -> list[Action]:
        """Kill those that live, because of the death of `name`."""
        actions: list[Action] = []
        for victim in self._in_order(victims):
            present = self._alive.get(victim)
            if present is not None and not (present.is_killed_with_group or present.is_ending):
                present.is_killed_with_group = True
                related = "of the same group" if victim in self._group_of[name].names else f"that {victim} needs"
                actions.append(Kill(victim, f"{name} {related} died"))
        return actions

    def _promotions(self, dead: set[str]) -> list[Promote]:
        """Swap active and standby wherever a whole active gang is dead and its standby gang is ready."""
        promotions: list[Promote] = []
        for group in dict.fromkeys(self._group_of[name] for name in self._in_order(dead)):
            partner = group.partner
            if partner is not None and not group.is_standby and dead.issuperset(group.names) and self._is_ready(partner):
                promotions.append(swap(group, partner))
        return promotions

    def _is_ready(self, group: GroupState) -> bool:
        members = [self._alive.get(name) for name in group.names]
        return all(m is not None and m.ready_s is not None and not (m.is_killed_with_group or m.is_ending) for m in members)

    def _is_dying(self, group: GroupState) -> bool:
        """True while the death of a process of this group is decided and not proven."""
        members = [self._alive.get(name) for name in group.names]
        return any(member is not None and (member.is_killed_with_group or member.is_ending) for member in members)

    def _in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        wanted = set(names)
        return tuple(name for name in self._order if name in wanted)
