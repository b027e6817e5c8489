"""Metrics about the choice between replicas."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class BalancingMetrics:
    """The metrics of one gateway. A replica is named as its scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.choices = Counter(
            "tardigrade_balancing_choices",
            "Sequences that were sent to a replica, by the reason for this replica.",
            ["replica", "why"],
            registry=registry,
        )
        self.openings = Counter(
            "tardigrade_breaker_openings",
            "How often new sequences began to avoid a replica.",
            ["replica", "why"],
            registry=registry,
        )
        self.breaker_state = Gauge(
            "tardigrade_breaker_state", "0: closed, 1: half-open, 2: open.", ["replica"], registry=registry
        )
        self.recalls = Counter(
            "tardigrade_recalls",
            "Waiting sequences that a replica was asked to give back, because another one can have them sooner.",
            ["replica", "why"],
            registry=registry,
        )
