"""Which schedulers owe a snapshot, and when to ask again. Pure; the clock is the caller's.

A question or its answer may be lost: hints are dropped when a link is full. So a question that was not answered in time is
asked once more, for as long as the scheduler lives; without this one lost message would hide a replica's prefixes for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SnapshotRequests:
    """Open questions by scheduler. `patience_s` is the time that an answer may take."""

    patience_s: float
    _asked_s: dict[str, float | None] = field(default_factory=dict)  # when last; None: not yet

    def want(self, scheduler: str) -> bool:
        """Updates of this scheduler were missed; True when that is news."""
        if scheduler in self._asked_s:
            return False
        self._asked_s[scheduler] = None
        return True

    def settle(self, scheduler: str) -> None:
        """Its snapshot came, or it is dead."""
        self._asked_s.pop(scheduler, None)

    def take_due(self, now_s: float) -> list[str]:
        """Whom to ask now; each of them is not due again before `patience_s` has passed."""
        due = [name for name, at_s in self._asked_s.items() if at_s is None or now_s - at_s >= self.patience_s]
        self._asked_s.update(dict.fromkeys(due, now_s))
        return due
