"""Metrics of the traces of one gateway. They exist only where traces are on."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge


class DropReason(StrEnum):
    """Why a trace was not exported."""

    FULL = "full"  # too many wait for the collector, or the disk is full
    REFUSED = "refused"  # by the collector, for good
    UNREACHABLE = "unreachable"  # the collector was not there for ten minutes
    UNREADABLE = "unreadable"  # their file was removed


class TraceMetrics:
    """Traces of requests by what became of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.exported = Counter("tardigrade_traces_exported", "Traces that the collector has taken.", registry=registry)
        self._dropped = Counter(
            "tardigrade_traces_dropped",
            "Traces that were not exported: too many waited, or the collector refused them or was not there.",
            ["why"],
            registry=registry,
        )
        self.waiting = Gauge("tardigrade_traces_waiting", "Traces that wait for the collector.", registry=registry)
        for reason in DropReason:
            self._dropped.labels(reason.value)

    def dropped(self, reason: DropReason, n_traces: int) -> None:
        """Count traces that are dropped."""
        self._dropped.labels(reason.value).inc(n_traces)
