"""The metrics of overload at one gateway."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.gateway.overload.measures import measures_of
from actors.gateway.overload.outlook import Outlook
from actors.gateway.overload.queued_tokens import QueuedTokens


class OverloadMetrics:
    """Metrics of what waits, of the level of degradation, and of what was refused or changed because of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queued = Gauge(
            "tardigrade_queued_tokens",
            "Tokens of prompts and expected output in accepted requests without a token yet.",
            registry=registry,
        )
        self._wait_s = Gauge(
            "tardigrade_expected_wait_seconds", "How long the work that waits at the replicas takes.", registry=registry
        )
        self._level = Gauge(
            "tardigrade_degradation_level",
            "0 normal, 1 no drafts, 2 fewer answers, 3 shorter answers, 4 new requests are shed.",
            registry=registry,
        )
        self._refused = Counter(
            "tardigrade_overload_refusals", "Requests that were refused for overload, by reason.", ["why"], registry=registry
        )
        self._degraded = Counter(
            "tardigrade_degraded_requests",
            "Requests changed for overload, by measure.",
            ["measure"],
            registry=registry,
        )

    def refused(self, why: str) -> None:
        """A request is refused for overload."""
        self._refused.labels(why).inc()

    def accepted(self, degraded: str) -> None:
        """A request is accepted. `degraded`: what was changed in it, as in `RequestSpec`."""
        for measure in measures_of(degraded):
            self._degraded.labels(measure).inc()

    def show(self, queued: QueuedTokens, outlook: Outlook) -> dict[str, float]:
        """Set the gauges. Returns what /v1/metrics and `supervisor status` show: nothing while nothing waits."""
        n_tokens, wait_s, level = queued.shares.n_held, outlook.wait_s, outlook.level
        self._queued.set(n_tokens)
        self._wait_s.set(wait_s)
        self._level.set(level)
        shown = {"queued_tokens": float(n_tokens), "expected_wait_s": round(wait_s, 3)} if n_tokens else {}
        return shown | ({"degradation_level": float(level)} if level else {})
