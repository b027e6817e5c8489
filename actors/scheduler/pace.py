"""How many steps a plan grants and how far ahead plans go, by how long steps take. Pure.

A plan costs the host the same whatever it grants, so short steps are granted several at once. But who arrives meanwhile waits
for all that has been granted: a lease lasts no longer than the gang finds worth it, and the next plan leaves only when what is
on its way lasts no longer than a plan's own way.
"""

from __future__ import annotations

_AHEAD_S = 0.004  # a result's way here and a plan's way there, on a host that is not idle
_SMOOTHING = 8
_NEVER_S = 1e9


class Pace:
    """Of one life of a gang."""

    def __init__(self, plans_in_flight: int, lease_s: float) -> None:
        """Nothing is known of the steps yet: they are taken to be as long as a lease."""
        self._plans_in_flight, self._lease_s = plans_in_flight, lease_s
        self._step_s = lease_s

    def note(self, compute_s: float) -> None:
        """A step took so long. Shorter ones count at once: a prompt says nothing of the decode steps behind it."""
        if not 0.0 <= compute_s < _NEVER_S:  # a clock that is wrong must not stop the plans
            return
        longer_s = max(compute_s - self._step_s, 0.0)
        self._step_s = min(self._step_s, compute_s) + longer_s / _SMOOTHING

    def lease_steps(self, most: int, is_drafting: bool = False) -> int:
        """What one plan should grant, at least 1. Drafts follow known tokens: while some are hoped for, no more is granted
        than must be on its way in any case."""
        limit_s = min(self._lease_s, _AHEAD_S) if is_drafting else self._lease_s
        return most if most * self._step_s <= limit_s else max(int(limit_s / self._step_s), 1)

    def is_enough(self, n_plans: int, n_steps: int) -> bool:
        """Can the next plan wait while so many plans, of so many steps, are on their way?"""
        if n_plans >= self._plans_in_flight:
            return True
        return n_steps >= self._plans_in_flight and n_steps * self._step_s >= _AHEAD_S
