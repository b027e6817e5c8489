"""Slows callers down whose requests kill workers again and again, each with another prompt. Pure: the caller passes the time.

Each sequence that is quarantined has killed a gang about four times, and a new prompt is not in the quarantine. Three sequences
cost a caller nothing. After each further one all requests of the caller are refused for a while: 10 s, then 20 s, and so on.
A caller that does no harm for as long as finished requests are retained begins anew. Other callers notice nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from actors.gateway.poison.remembered import RememberedCaller
from actors.gateway.requests.refusals import Refusal

_FREE = 3
_FIRST_PAUSE_S = 10.0
_MAX_CALLERS = 4096
_MAX_HARMS = 32  # of one caller, the newest; with fewer its pause is as long as it can be


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
        account.harms = [*account.harms[1 - _MAX_HARMS :], replicas]
        account.last_s = now_s
        self._accounts[caller] = account
        self._drop_oldest()

    def check(self, caller: bytes, now_s: float) -> None:
        """Return if this caller may send requests now. Raises: Refusal."""
        account = self._accounts.get(caller)
        if account is None:
            return
        left_s = account.last_s + self._pause_s(len(account.harms)) - now_s
        if left_s > 0:
            died = f"workers died of {len(account.harms)} sequences of this caller, of {_FREE} that cost it nothing"
            detail = f"{died}; its requests are refused for another {math.ceil(left_s)} s"
            raise Refusal("caller_harms_workers", detail, retry_after_s=left_s, limit=f"harmful_sequences={_FREE}")

    def clear_replica(self, replica: str) -> bool:
        """Blame no caller for deaths at a sick replica. Returns True if one was."""
        n_before = sum(len(account.harms) for account in self._accounts.values())
        for account in self._accounts.values():
            account.harms = [replicas for replicas in account.harms if replica not in replicas]
        return sum(len(account.harms) for account in self._accounts.values()) < n_before

    def remembered(self, now_s: float) -> list[RememberedCaller]:
        """What counts now, the oldest first."""
        return [
            RememberedCaller(caller, now_s - account.last_s, tuple(tuple(sorted(replicas)) for replicas in account.harms))
            for caller, account in self._accounts.items()
            if account.harms and now_s - account.last_s <= self._memory_s
        ]

    def restore(self, callers: Iterable[RememberedCaller], now_s: float) -> None:
        """Add what an earlier process remembers. Callers that are known already stay as they are."""
        for one in callers:
            if one.quiet_s <= self._memory_s:
                harms = [frozenset(replicas) for replicas in one.harms[-_MAX_HARMS:]]
                self._accounts.setdefault(one.caller, _Account(harms, now_s - one.quiet_s))
        self._accounts = dict(sorted(self._accounts.items(), key=lambda item: item[1].last_s))
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._accounts) > _MAX_CALLERS:
            del self._accounts[next(iter(self._accounts))]

    def _pause_s(self, n_harms: int) -> float:
        """How long a caller is refused after its last harm."""
        n_beyond_free = n_harms - _FREE
        return min(_FIRST_PAUSE_S * 2.0 ** min(n_beyond_free - 1, 16), self._memory_s) if n_beyond_free > 0 else 0.0
