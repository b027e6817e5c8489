"""Decides in place of the accounts while they do not answer: from what they have said last. Pure.

Each gateway uses its part of what was left then and of what comes since, so all gateways together use no more than the limits.
What they have used is counted by the accounts afterwards. Gateways that have heard last at different times may use some more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from messages.access.allowances import AllowanceState, AllowanceTaken, WantedAllowance
from messages.access.bucket import Bucket
from messages.access.tenant_policy import LimitName, TenantPolicy

_MOST_TENANTS = 4096  # whose last state is remembered
_RETRY_S = 1.0  # by then the accounts have come back


class _Copy:
    """A gateway's part of what one tenant has left."""

    def __init__(self, policy: TenantPolicy, state: AllowanceState, share: float, now_s: float) -> None:
        self.requests = Bucket(policy.requests_per_min * share, now_s, state.requests * share)
        self.tokens = Bucket(policy.tokens_per_min * share, now_s, state.tokens * share, state.owed_tokens * share)
        self.day_tokens = state.day_tokens * share


class StandIn:
    """The last states of tenants. `n_gateways`: of this server."""

    def __init__(self, n_gateways: int) -> None:
        self._share = 1.0 / max(n_gateways, 1)
        self._states: dict[str, tuple[AllowanceState, float]] = {}
        self._copies: dict[str, _Copy] = {}

    def heard(self, tenant: str, state: AllowanceState, now_s: float) -> None:
        """The accounts have said what a tenant has left."""
        if len(self._states) >= _MOST_TENANTS and tenant not in self._states:
            self._states.clear()
            self._copies.clear()
        self._states[tenant] = (state, now_s)
        self._copies.pop(tenant, None)

    def knows(self, tenant: str) -> bool:
        """True if the accounts have said what this tenant has left."""
        return tenant in self._states

    def decide(
        self, tenant: str, policy: TenantPolicy, wanted: Sequence[WantedAllowance], n_open: int, now_s: float
    ) -> AllowanceTaken:
        """What the accounts would say. `n_open`: sequences of the tenant that this gateway has accepted."""
        copy = self._copy(tenant, policy, now_s)
        n_sequences = sum(one.sequences for one in wanted)
        n_tokens = sum(one.prompt_tokens + one.output_tokens for one in wanted)
        n_bucket_tokens = min(n_tokens, math.floor(copy.tokens.per_min))
        of_limits = (
            (LimitName.REQUESTS, len(wanted), copy.requests.has(len(wanted))),
            (LimitName.TOKENS, n_tokens, copy.tokens.has(n_bucket_tokens)),
            (LimitName.SEQUENCES, n_sequences, n_open + n_sequences <= policy.max_sequences * self._share),
            (LimitName.DAY, n_tokens, n_tokens <= copy.day_tokens),
        )
        for name, needed, is_enough in of_limits:
            limit = int(getattr(policy, name.value))
            if limit and not is_enough:
                return AllowanceTaken(
                    call=0, state=_state(copy), refused_by=name, limit=limit, needed=needed, retry_after_s=_RETRY_S
                )
        copy.requests.take(len(wanted))
        copy.tokens.take(n_bucket_tokens)
        copy.day_tokens = max(copy.day_tokens - n_tokens, 0.0)
        return AllowanceTaken(call=0, state=_state(copy))

    def _copy(self, tenant: str, policy: TenantPolicy, now_s: float) -> _Copy:
        copy = self._copies.get(tenant)
        if copy is None:
            if len(self._copies) >= _MOST_TENANTS:
                self._copies.clear()
            state, at_s = self._states.get(tenant) or (_full(policy), now_s)
            copy = self._copies[tenant] = _Copy(policy, state, self._share, at_s)
        copy.requests.refill(now_s, policy.requests_per_min * self._share)
        copy.tokens.refill(now_s, policy.tokens_per_min * self._share)
        return copy


def _full(policy: TenantPolicy) -> AllowanceState:
    """What a tenant has left of which nothing is known."""
    return AllowanceState(requests=policy.requests_per_min, tokens=policy.tokens_per_min, day_tokens=policy.tokens_per_day)


def _state(copy: _Copy) -> AllowanceState:
    return AllowanceState(
        requests=int(copy.requests.left), tokens=int(copy.tokens.left), sequences=0, day_tokens=int(copy.day_tokens)
    )
