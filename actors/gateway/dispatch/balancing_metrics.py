"""Metrics about the choice between replicas."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.gateway.dispatch.balancing.strategy import ChoiceReason


class BalancingMetrics:
    """The metrics of one gateway. A replica is named as its scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.choices = Counter(
            "tardigrade_balancing_choices",
            "Sequences that were sent to a replica, by the reason for this replica.",
            ["replica", "why"],
            registry=registry,
        )
        self._choices: dict[tuple[str, ChoiceReason], Counter] = {}  # found by their labels
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

    def chosen(self, name: str, why: ChoiceReason) -> None:
        """A sequence goes to this replica. Each sequence counts here, and to find a counter by labels takes longer than to
        count."""
        counter = self._choices.get((name, why))
        if counter is None:
            counter = self._choices[name, why] = self.choices.labels(name, why.value)
        counter.inc()
