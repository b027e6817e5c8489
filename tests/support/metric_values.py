"""Read the value of a Prometheus metric."""

from __future__ import annotations

from prometheus_client import Counter, Gauge


def metric_value(metric: Counter | Gauge) -> float:
    """The value of a metric without labels."""
    (family,) = metric.collect()
    (value,) = (sample.value for sample in family.samples if not sample.name.endswith("_created"))
    return value
