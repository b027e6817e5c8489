"""What a new request has to expect: how long it will wait, and which level of degradation the server has. Pure."""

from __future__ import annotations

from collections.abc import Callable

from actors.gateway.dispatch.replica_loads import ReplicaLoads
from messages.generation.replica_load import DegradationLevel, ReplicaLoad

_SOONEST_S, _LATEST_S = 1.0, 60.0  # of Retry-After


class Outlook:
    """Reads the reports of the replicas that new requests go to, whose schedulers `candidates` names. `n_queued`: the tokens
    that wait at this gateway, which count while no replica reports."""

    def __init__(self, loads: ReplicaLoads, candidates: Callable[[], list[str]], n_queued: Callable[[], int]) -> None:
        self._loads, self._candidates, self._n_queued = loads, candidates, n_queued
        self._rate = 0.0  # tokens in a second, of all replicas, as last known
        self._names: list[str] | None = None  # the wait that the loads of this version tell of these replicas is `_wait_s`
        self._version, self._wait_s = -1, 0.0

    @property
    def level(self) -> DegradationLevel:
        """The lowest level of a replica that new requests go to; normal for one that reports none."""
        if not self._loads.have_level:
            return DegradationLevel.NORMAL
        loads = [self._loads.of(name) for name in self._candidates()]
        return min((DegradationLevel.NORMAL if one is None else one.level for one in loads), default=DegradationLevel.NORMAL)

    @property
    def wait_s(self) -> float:
        """How long the work that waits now takes; 0 while no rate is known."""
        names = self._candidates()
        if names is self._names and self._version == self._loads.version:
            return self._wait_s
        reports = self._reports()
        n_tokens = sum([one.waiting_tokens for one in reports]) if reports else self._n_queued()
        rate = self._rate_of(reports)
        self._wait_s = n_tokens / rate if rate else 0.0
        self._names, self._version = names if reports else None, self._loads.version
        return self._wait_s

    def retry_after_s(self, n_excess: int) -> float:
        """When `n_excess` tokens that wait now will have begun; from 1 to 60 s."""
        rate = self._rate_of(self._reports())
        return min(max(n_excess / rate if rate else _SOONEST_S, _SOONEST_S), _LATEST_S)

    def _reports(self) -> list[ReplicaLoad]:
        return [one for name in self._candidates() if (one := self._loads.of(name)) is not None]

    def _rate_of(self, reports: list[ReplicaLoad]) -> float:
        """Tokens in a second of these replicas. Without any report that has a rate, as it was before."""
        rate = sum([one.prefill_rate + one.decode_rate for one in reports])
        if rate > 0.0:
            self._rate = rate
        return self._rate
