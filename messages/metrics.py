"""Prometheus metrics: a fast histogram, and the snapshot that a Progress message carries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from messages.lifecycle.lifecycle import MetricFamily, MetricSample


def quantile_of(bounds: Sequence[float], counts: Sequence[float], q: float) -> float:
    """Quantile `q` (0 to 1) of observations in buckets, as `Histogram.quantile` describes it; 0.0 without observations.

    `bounds`: upper bounds of the buckets, ascending. `counts`: observations in each, and above the last bound.
    """
    wanted, seen, lower = q * sum(counts), 0.0, 0.0
    for upper, count in zip((*bounds, bounds[-1]), counts, strict=True):
        if count and seen + count >= wanted:
            return lower + (upper - lower) * max(wanted - seen, 0.0) / count
        seen, lower = seen + count, upper
    return 0.0


class Histogram(Collector):
    """A Prometheus histogram for one thread. An observation is one bisection and two additions: no lock, no label lookup."""

    def __init__(self, name: str, documentation: str, bounds: tuple[float, ...]) -> None:
        """`bounds`: upper bounds of the buckets, ascending. One more bucket counts everything above the last."""
        self._name, self._documentation, self._bounds = name, documentation, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def count(self) -> int:
        """Number of observations so far."""
        return sum(self._counts)

    def quantile(self, q: float) -> float:
        """Estimate of quantile `q` (0 to 1); 0.0 without observations.

        Interpolates linearly inside the bucket that contains the quantile, as Prometheus' `histogram_quantile` does. A
        quantile above the last bound is given as the last bound.
        """
        return quantile_of(self._bounds, self._counts, q)

    def summary_ms(self) -> dict[str, float]:
        """Of values in seconds: the count, and in ms the mean and the quantiles 0.5, 0.9 and 0.99 as `quantile` gives them."""
        count = self.count
        mean_s = self._sum / count if count else 0.0
        quantiles = {f"p{round(q * 100)}_ms": round(self.quantile(q) * 1000, 3) for q in (0.5, 0.9, 0.99)}
        return {"count": count, "mean_ms": round(mean_s * 1000, 3), **quantiles}

    def collect(self) -> Iterable[Metric]:
        """The histogram in the format of Prometheus, with cumulative buckets."""
        buckets, total = [], 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


def take_snapshot(registry: CollectorRegistry) -> list[MetricFamily]:
    """All metric families of one process, with their present values."""
    return [
        MetricFamily(
            name=family.name,
            documentation=family.documentation,
            type=family.type,
            samples=[
                MetricSample(suffix=s.name.removeprefix(family.name), labels=dict(s.labels), value=float(s.value))
                for s in family.samples
                if not s.name.endswith("_created")
            ],
        )
        for family in registry.collect()
    ]
