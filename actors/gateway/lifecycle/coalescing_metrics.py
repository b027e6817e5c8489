"""The metrics of equal requests that are computed once, read whenever somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.gateway.lifecycle.coalescing import Coalescing


class CoalescingMetrics(Collector):
    """To be registered where equal requests that run at the same time are computed once."""

    def __init__(self, coalescing: Coalescing) -> None:
        self._coalescing = coalescing

    def collect(self) -> Iterator[Metric]:
        """The present numbers, each as one metric."""
        text = "Requests that got the tokens of an equal one while it was computed."
        yield CounterMetricFamily("tardigrade_coalesced_requests", text, self._coalescing.n_requests)
        yield CounterMetricFamily("tardigrade_coalesced_tokens", "Output tokens that they got so.", self._coalescing.n_tokens)
