"""Slows callers down whose requests kill workers again and again, each with another prompt. Pure: the caller passes the time.

Each sequence that is quarantined has killed a gang about four times, and a new prompt is not in the quarantine. Three sequences
cost a caller nothing. After each further one all requests of the caller are refused for a while: 10 s, then 20 s, and so on.
A caller that does no harm for as long as finished requests are retained begins anew. Other callers notice nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from actors.gateway.requests.refusals import Refusal

_FREE = 3
_FIRST_PAUSE_S = 10.0
_MAX_CALLERS = 4096


@dataclass
class _Account:
    """The harm of one caller: for each quarantined sequence the replicas at which workers died, and when the last one was."""

    harms: list[frozenset[str]] = field(default_factory=list)
    last_s: float = 0.0


class HarmBudget:
    """At most 4096 callers; the one with the oldest harm is dropped first. `memory_s`: how long harm is remembered."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._accounts: dict[bytes, _Account] = {}  # by caller, in the order of their last harm

    def charge(self, caller: bytes, replicas: frozenset[str], now_s: float) -> None:
        """A sequence of this caller is quarantined, because workers of these replicas died."""
        account = self._accounts.pop(caller, None)
        if account is None or now_s - account.last_s > self._memory_s:
            account = _Account()
        account.harms.append(replicas)
        account.last_s = now_s
        self._accounts[caller] = account
        while len(self._accounts) > _MAX_CALLERS:
            del self._accounts[next(iter(self._accounts))]

    def check(self, caller: bytes, now_s: float) -> None:
        """Return if this caller may send requests now. Raises: Refusal."""
        account = self._accounts.get(caller)
        if account is None:
            return
        left_s = account.last_s + self._pause_s(len(account.harms)) - now_s
        if left_s > 0:
            died = f"workers died of {len(account.harms)} sequences of this caller"
            detail = f"{died}; its requests are refused for another {math.ceil(left_s)} s"
            raise Refusal("overloaded", detail, retry_after_s=left_s, name="caller_harms_workers")

    def acquit(self, replica: str) -> None:
        """This replica is sick: deaths there are nobody's fault."""
        for account in self._accounts.values():
            account.harms = [replicas for replicas in account.harms if replica not in replicas]

    def _pause_s(self, n_harms: int) -> float:
        """How long a caller is refused after its last harm."""
        n_paid = n_harms - _FREE
        return min(_FIRST_PAUSE_S * 2.0 ** min(n_paid - 1, 16), self._memory_s) if n_paid > 0 else 0.0
