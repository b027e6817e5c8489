"""Metrics of the traces of one gateway. They exist only where traces are on."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge


class DropReason(StrEnum):
    """Why spans were not exported."""

    FULL = "full"  # too many wait for the collector, or the disk is full
    REFUSED = "refused"  # by the collector, for good
    UNREACHABLE = "unreachable"  # the collector was not there for ten minutes
    UNREADABLE = "unreadable"  # their file was removed


class TraceMetrics:
    """Spans by what became of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.exported = Counter("tardigrade_trace_spans_exported", "Spans that the collector has taken.", registry=registry)
        self._dropped = Counter(
            "tardigrade_trace_spans_dropped",
            "Spans that were not exported: too many waited, or the collector refused them or was not there.",
            ["why"],
            registry=registry,
        )
        self.waiting = Gauge("tardigrade_trace_spans_waiting", "Spans that wait for the collector.", registry=registry)
        for reason in DropReason:
            self._dropped.labels(reason.value)

    def dropped(self, reason: DropReason, n_spans: int) -> None:
        """Count spans that are dropped."""
        self._dropped.labels(reason.value).inc(n_spans)
