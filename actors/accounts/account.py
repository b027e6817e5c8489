"""The account of one tenant: what it has used, what is set aside for its open requests, and what it may use now. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from messages.access.allowances import AllowanceState
from messages.access.bucket import Bucket
from messages.access.tenant_policy import LimitName, TenantPolicy

DAY_S = 86_400
_SEQUENCE_WAIT_S = 1.0  # nobody knows when a sequence ends


@dataclass(frozen=True)
class Need:
    """What the requests of one question need. `prompt_tokens`: of `tokens`, those that they use in any case."""

    requests: int
    sequences: int
    prompt_tokens: int
    tokens: int

    def of(self, name: LimitName, limit: int) -> tuple[int, bool]:
        """What they need of a limit, and whether it can ever be enough. More tokens than a limit has are not set aside: a whole
        limit is enough for any answer, though not for any prompt."""
        if name is LimitName.REQUESTS:
            return self.requests, self.requests <= limit
        if name is LimitName.SEQUENCES:
            return self.sequences, self.sequences <= limit
        return min(self.tokens, limit), self.prompt_tokens <= limit


@dataclass(frozen=True)
class Denied:
    """A limit that has not enough left. `retry_after_s`: when it may have; 0: never."""

    name: LimitName
    limit: int
    needed: int
    retry_after_s: float


class TenantAccount:
    """One account. `now_s`: the monotonic clock; `wall_s`: Unix time. No number here is ever negative."""

    def __init__(self, policy: TenantPolicy, now_s: float, wall_s: float) -> None:
        self.policy = policy
        self.requests, self.tokens = Bucket(policy.requests_per_min, now_s), Bucket(policy.tokens_per_min, now_s)
        self.day, self.used_today = int(wall_s // DAY_S), 0
        self.held_tokens = self.n_sequences = 0  # set aside for open requests, and not used by them so far

    def refresh(self, policy: TenantPolicy, now_s: float, wall_s: float) -> None:
        """Go on to this time."""
        self.policy = policy
        self.requests.refill(now_s, policy.requests_per_min)
        self.tokens.refill(now_s, policy.tokens_per_min)
        self.begin_day(wall_s)

    def begin_day(self, wall_s: float) -> None:
        """A new day begins with nothing used; a clock that is put back begins no day a second time."""
        day = int(wall_s // DAY_S)
        if day > self.day:
            self.day, self.used_today = day, 0
        elif day < self.day - 1:  # it was far ahead: what was used meanwhile counts for this day
            self.day = day

    def denied(self, need: Need, wall_s: float) -> Denied | None:
        """What forbids it now; None: nothing does. Of several limits the one that forbids it for ever, or else the longest:
        whoever comes back then is not refused by another one."""
        longest: Denied | None = None
        for name in LimitName:
            limit = int(getattr(self.policy, name.value))
            if limit:
                needed, is_possible = need.of(name, limit)
                if not is_possible:
                    return Denied(name, limit, need.prompt_tokens if name not in _COUNTED else needed, 0.0)
                wait_s = self._wait_s(name, limit, needed, wall_s)
                if wait_s > (longest.retry_after_s if longest is not None else 0.0):
                    longest = Denied(name, limit, needed, wait_s)
        return longest

    def take(self, need: Need) -> int:
        """Take what `denied` has not forbidden; returns the tokens that are set aside in the bucket."""
        self.requests.take(need.requests)
        self.n_sequences += need.sequences
        self.held_tokens += need.tokens
        set_aside = min(need.tokens, self.policy.tokens_per_min)
        self.tokens.take(set_aside)
        return set_aside

    def use(self, change: int, held_change: int) -> None:
        """A request has used `change` tokens more, or fewer than was thought; `held_change`: of what is set aside for it."""
        self.used_today = max(self.used_today + change, 0)
        self.held_tokens = max(self.held_tokens + held_change, 0)

    def state(self) -> AllowanceState:
        """What is left now."""
        p = self.policy
        return AllowanceState(
            requests=int(self.requests.left),
            tokens=int(self.tokens.left),
            sequences=max(p.max_sequences - self.n_sequences, 0),
            day_tokens=self._left_today(p.tokens_per_day),
            owed_tokens=math.ceil(self.tokens.owed),
        )

    def _left_today(self, limit: int) -> int:
        return max(limit - self.used_today - self.held_tokens, 0)

    def _wait_s(self, name: LimitName, limit: int, needed: int, wall_s: float) -> float:
        if name is LimitName.REQUESTS:
            return 0.0 if self.requests.has(needed) else self.requests.wait_s(needed)
        if name is LimitName.TOKENS:
            return 0.0 if self.tokens.has(needed) else self.tokens.wait_s(needed)
        if name is LimitName.SEQUENCES:
            return 0.0 if self.n_sequences + needed <= limit else _SEQUENCE_WAIT_S
        if needed <= self._left_today(limit):
            return 0.0
        if needed <= limit - self.used_today:  # requests that are open now may need less than is set aside
            return _SEQUENCE_WAIT_S
        return max((self.day + 1) * DAY_S - wall_s, _SEQUENCE_WAIT_S)


_COUNTED = (LimitName.REQUESTS, LimitName.SEQUENCES)
