"""How often a group was restarted, and whether it may be again. Pure: the caller passes the time.

This outlives the supervisor: a group that fails again and again spends its budget although its supervisor dies too.
"""

from __future__ import annotations

import msgspec

from supervisor.policy.child_spec import Budget

_FIRST_DELAY_S = 0.02
_LONGEST_DELAY_S = 2.0
_SHORT_S = 1.0  # an incarnation that was ready for less than this is short


class History(msgspec.Struct, gc=False):
    """The starts and deaths of one group."""

    restarts_s: list[float] = []  # times of restarts inside the budget's window, by the monotonic clock
    failed_starts: int = 0  # in a row
    killed_starts: int = 0  # how many of these were ended by a kill from outside
    n_short: int = 0  # short incarnations in a row
    was_ready: bool = False  # all of it, at least once

    @property
    def delay_s(self) -> float:
        """The pause before the next start."""
        doublings = self.n_short - 2
        return 0.0 if doublings < 0 else min(_FIRST_DELAY_S * 2.0**doublings, _LONGEST_DELAY_S)

    def became_ready(self) -> None:
        """All of the group can serve."""
        self.was_ready, self.failed_starts, self.killed_starts = True, 0, 0

    def restarts_left(self, budget: Budget, now_s: float) -> int:
        """How many more deaths the group may have, if they came at once."""
        return max(budget.restarts - sum(now_s - at < budget.window_s for at in self.restarts_s), 0)

    def note_death(self, budget: Budget, ready_s: float | None, now_s: float, is_foreign: bool) -> None:
        """A member has died. `ready_s`: since when it had been ready; None: it had not. `is_foreign`: killed from outside."""
        self.restarts_s = [at for at in self.restarts_s if now_s - at < budget.window_s]
        self.restarts_s.append(now_s)
        if is_foreign and self.was_ready:
            return
        self.failed_starts += ready_s is None
        self.killed_starts += ready_s is None and is_foreign
        is_short = ready_s is None or now_s - ready_s < _SHORT_S
        self.n_short = self.n_short + 1 if is_short else 0

    def has_failed_to_start(self, budget: Budget) -> bool:
        """True if too many starts in a row did not become ready."""
        if not self.was_ready and self.failed_starts - self.killed_starts >= budget.start_attempts:
            return True
        return self.failed_starts >= (budget.restart_attempts if self.was_ready else budget.most_attempts)

    def has_died_too_often(self, budget: Budget) -> bool:
        """True if there were too many restarts within the window."""
        return len(self.restarts_s) > budget.restarts


class Retired(msgspec.Struct, gc=False):
    """A group that was retired at least once since it was last steady."""

    since_s: float
    times: int  # in a row
    reason: str  # why it is retired now; "": it is ready again


class Memory(msgspec.Struct, frozen=True):
    """What the next supervisor must know of the past: of each group by its title."""

    histories: dict[str, History] = {}
    retired: dict[str, Retired] = {}
    standbys: list[str] | None = None  # the gangs on standby; None: those of the configuration
