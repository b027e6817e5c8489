"""When a group that fails again and again is retired instead of the server being stopped. Pure: the caller passes the time.

A retired group is started again after pauses that double, and it is a full member again as soon as it is ready. The server ends
only when a service has no unit left: groups of one *unit* work together (the gang and the scheduler of a replica), and units of
one *service* (all replicas, all gateways) do the same work.
"""

from __future__ import annotations

from supervisor.policy.child_spec import Group
from supervisor.policy.history import Retired

_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
_LONGEST_ALONE_S = 10.0  # while nothing else does its work
_STEADY_S = 60.0  # a group that was ready for so long begins with the first pause again


class Retirement:
    """Which groups are retired. `groups`: all of the tree."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self._groups = groups
        self._standby_of = {g.title: other.title for g in groups for other in groups if g.title == other.standby_of}
        self._standby_of |= {g.title: g.standby_of for g in groups if g.standby_of}
        self.retired: dict[str, Retired] = {}

    def reason(self, title: str) -> str:
        """Why this group is retired; "" if it is not."""
        retired = self.retired.get(title)
        return retired.reason if retired is not None else ""

    def became_ready(self, title: str) -> None:
        """The group is ready: it is not retired any more."""
        if (retired := self.retired.get(title)) is not None:
            retired.reason = ""

    def note_death(self, title: str, ready_s: float) -> None:
        """A member of this group has died after it had been ready for `ready_s` seconds."""
        if ready_s >= _STEADY_S and not self.reason(title):
            self.retired.pop(title, None)

    def retire(self, group: Group, reason: str, now_s: float, was_ready: bool) -> float | None:
        """Retire a group that cannot go on. Returns the pause in seconds before its next start, or None if the server must end.

        `was_ready`: the group has been ready at least once.
        """
        is_alone = not self._others_serve(group)
        before = self.retired.get(group.title)
        since_s = before.since_s if before is not None else now_s
        if is_alone and (not was_ready or now_s - since_s >= group.patience_s):
            return None
        times = before.times + 1 if before is not None else 1
        self.retired[group.title] = Retired(since_s, times, reason)
        longest_s = _LONGEST_ALONE_S if is_alone else _LONGEST_PAUSE_S
        return min(_FIRST_PAUSE_S * 2.0 ** min(times - 1, 30), longest_s)

    def _others_serve(self, group: Group) -> bool:
        """True if the server can serve without this group."""
        standby = self._standby_of.get(group.title)
        if group.is_optional or (standby is not None and not self.reason(standby)):
            return True
        if group.unit is None:
            return False
        missing = {g.unit for g in self._groups if g.unit is not None and self._is_missing(g)}
        units = {g.unit for g in self._groups if g.unit is not None and g.unit.service == group.unit.service}
        return bool(units - missing - {group.unit})

    def _is_missing(self, group: Group) -> bool:
        """True if a group is retired, and its standby, if it has one, too."""
        standby = self._standby_of.get(group.title)
        return bool(self.reason(group.title)) and (standby is None or bool(self.reason(standby)))
