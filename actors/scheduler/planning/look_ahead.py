"""Decides how many steps one plan grants, and when the next plan is sent ahead of the results of the last one. Pure.

A plan costs the host the same whether it grants one step or several, so short steps are granted several at a time (a lease of
steps). But a sequence that arrives meanwhile waits for all steps that have been granted. So a lease lasts no longer than
`EngineCapacity.lease_s`, and the next plan is sent only when the steps in flight would end before it reaches the gang.

How long a plan needs to reach the gang depends on the host and on the rows. Where it was launched too late, the device has
waited, and the worker says how long. Then more plans are sent ahead, until the device waits no more.
"""

from __future__ import annotations

import math

_ROUND_TRIP_S = 0.004  # a result reaches the scheduler and the next plan the gang, on a host that is not idle
_SMOOTHING_STEPS = 8
_NEVER_S = 1e9
_MORE_PLANS = 2  # sent ahead, beyond those of the setting, to a device that waits otherwise
_MOST_WAIT_S, _MOST_AHEAD_S = 0.02, 0.05  # a pause says nothing about the usual way of a plan
_SMOOTHING_WAITS = 16
_WAIT_SHARE = 0.1  # of a lease: one more plan in flight delays newcomers by more than shorter waits are worth
_KEPT = 0.998  # of the time ahead, with each plan: hosts become faster again


class LookAhead:
    """The step times of one epoch, and what follows from them."""

    def __init__(self, plans_in_flight: int, lease_s: float) -> None:
        """`plans_in_flight` plans are sent ahead, and from 2 on up to `_MORE_PLANS` more to a device that waits. Until a step
        has been measured, its time is taken to be `lease_s`."""
        self._plans_in_flight, self._lease_s = plans_in_flight, lease_s
        self._most_plans = plans_in_flight + _MORE_PLANS if plans_in_flight > 1 else 1
        self._step_s = lease_s
        self._wait_s = 0.0  # of the device for a plan, smoothed
        self._ahead_s = 0.0  # that has to be in flight, as far as the waits of the device have shown

    def add_step_time(self, compute_s: float) -> None:
        """Note how long a step took. The estimate follows shorter steps at once and longer ones gradually, because the decode
        steps after a long prompt are as short as those before it."""
        if not 0.0 <= compute_s < _NEVER_S:  # ignores NaN too: a wrong clock must not stop planning
            return
        longer_s = max(compute_s - self._step_s, 0.0)
        self._step_s = min(self._step_s, compute_s) + longer_s / _SMOOTHING_STEPS

    def lease_steps(self, most: int, is_drafting: bool = False) -> int:
        """Steps that one plan should grant, 1 to `most`. With `is_drafting` a lease lasts at most one round trip, because
        a draft can be used only after known tokens."""
        limit_s = min(self._lease_s, _ROUND_TRIP_S) if is_drafting else self._lease_s
        return most if most * self._step_s <= limit_s else max(int(limit_s / self._step_s), 1)

    def add_wait(self, wait_s: float) -> None:
        """Note how long the device waited for a plan that was in flight when the step before it ended; less than 0: it was
        launched so long before that. Ignores NaN."""
        if math.isnan(wait_s):
            return
        self._wait_s += (min(max(wait_s, 0.0), _MOST_WAIT_S) - self._wait_s) / _SMOOTHING_WAITS
        self._ahead_s *= _KEPT
        if self._wait_s > _WAIT_SHARE * max(self._step_s, self._lease_s):
            self._ahead_s = min(self._ahead_s + self._wait_s, _MOST_AHEAD_S)

    def is_enough(
        self, n_plans: int, n_steps: int, has_prompts: bool = False, has_slot: bool = False, is_drafting: bool = False
    ) -> bool:
        """True if the next plan can wait while `n_plans` plans with `n_steps` steps in all are in flight. has_prompts: some of
        them compute prompts; has_slot: more sequences could run.

        A device that waits gets no more plans than the setting says with `is_drafting`, because drafts need known tokens, and
        while sequences come that find room: smaller plans would only give the host more work for the same tokens."""
        flight_s = n_steps * self._step_s
        if n_plans >= self._plans_in_flight:
            is_filling = has_prompts and has_slot
            return is_drafting or is_filling or n_plans >= self._most_plans or flight_s >= self._ahead_s
        return n_steps >= self._plans_in_flight and flight_s >= _ROUND_TRIP_S
