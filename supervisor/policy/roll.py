"""A rolling restart as data: what has been replaced, what comes next, how it ended. Pure. It outlives the supervisor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from messages.ids import SUPERVISOR, role_of
from messages.lifecycle.tree import RestartProgress

FIRST = role_of(SUPERVISOR)  # the supervisor itself is replaced first, so that one that knows the new program starts the others


class Roll(msgspec.Struct, frozen=True):
    """The newest rolling restart of a server. The default: there was none. `todo` and `done` are titles of groups."""

    number: int = 0  # in this server
    done: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()  # the one that is being replaced first
    failure: str = ""

    @property
    def is_open(self) -> bool:
        """True while there are groups to replace and none has failed."""
        return bool(self.todo) and not self.failure

    def begin(self, titles: Iterable[str], with_supervisor: bool = True) -> Roll:
        """The next rolling restart: it replaces the supervisor, if it is wanted, and then the groups with these titles."""
        return Roll(self.number + 1, (), (FIRST, *titles) if with_supervisor else tuple(titles))

    def replaced(self) -> Roll:
        """This restart with the first of `todo` moved to `done`."""
        return Roll(self.number, (*self.done, self.todo[0]), self.todo[1:])

    def failed(self, why: str) -> Roll:
        """This restart, stopped at the first of `todo`. `why`: one line for the operator."""
        return msgspec.structs.replace(self, failure=why)

    def progress(self) -> RestartProgress | None:
        """This restart as a status report shows it; None if there was none."""
        if not self.number:
            return None
        return RestartProgress(number=self.number, done=list(self.done), todo=list(self.todo), failure=self.failure)


def order_of_groups(titles: Iterable[str], active_of_standby: Mapping[str, str]) -> list[str]:
    """The groups in the order in which they are replaced: the start order, but a standby gang comes just before its active
    gang, so that a new one is ready to take over when that is stopped.

    `active_of_standby`: of each gang that is on standby now, the gang that is active.
    """
    standby_of = {active: standby for standby, active in active_of_standby.items()}
    ordered: list[str] = []
    for title in titles:
        if title not in active_of_standby:
            ordered += [standby_of[title], title] if title in standby_of else [title]
    return ordered
