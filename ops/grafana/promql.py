"""Expressions of PromQL over the servers that a dashboard is about."""

from __future__ import annotations

from ops.grafana.panels import INSTANCE, Query

_RATE = "$__rate_interval"


def each(name: str) -> str:
    """Every series of a metric."""
    return f"{name}{{{INSTANCE}}}"


def total(name: str, *by: str) -> str:
    """The sum of a metric, for each value of these labels."""
    return f"sum{_grouped(by)} ({each(name)})"


def rate(name: str, *by: str) -> str:
    """The growth of a counter in a second, for each value of these labels."""
    return f"sum{_grouped(by)} (rate({each(name)}[{_RATE}]))"


def quantiles(name: str, *shares: float) -> tuple[Query, ...]:
    """A line for each quantile (0 to 1) of a histogram."""
    buckets = rate(f"{name}_bucket", "le")
    return tuple(Query(f"histogram_quantile({share}, {buckets})", f"p{share * 100:g}") for share in shares)


def mean(name: str, legend: str, *by: str) -> Query:
    """A line with the mean of a histogram, for each value of these labels."""
    return Query(f"{rate(f'{name}_sum', *by)} / {rate(f'{name}_count', *by)}", legend)


def _grouped(by: tuple[str, ...]) -> str:
    return f" by ({', '.join(by)})" if by else ""
