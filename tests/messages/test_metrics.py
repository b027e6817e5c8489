"""Quantiles of a histogram: estimated inside a bucket, as Prometheus' histogram_quantile estimates them."""

from __future__ import annotations

import pytest

from messages.metrics import Histogram


def histogram_of(*values: float) -> Histogram:
    histogram = Histogram("waits", "Some waits.", (1.0, 2.0, 4.0))
    for value in values:
        histogram.observe(value)
    return histogram


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ((), 0.5, 0.0),
        ((0.3, 0.9), 0.5, 0.5),  # half of the first bucket, which begins at 0
        ((1.5, 1.5, 1.5, 1.5), 0.25, 1.25),
        ((0.5, 3.0, 3.0, 3.0), 0.5, 2.0 + 2.0 / 3.0),
        ((0.5, 3.0), 0.5, 1.0),  # the empty bucket between them has no part in it
        ((0.5, 3.0), 1.0, 4.0),
        ((3.0,), 0.0, 2.0),
        ((100.0, 200.0), 0.5, 4.0),  # above the last bound: the last bound
    ],
)
def test_a_quantile_is_interpolated_inside_its_bucket(values: tuple[float, ...], q: float, expected: float) -> None:
    assert histogram_of(*values).quantile(q) == pytest.approx(expected)


def test_the_summary_is_in_milliseconds() -> None:
    assert histogram_of(0.5, 0.5).summary_ms() == {
        "count": 2, "mean_ms": 500.0, "p50_ms": 500.0, "p90_ms": 900.0, "p99_ms": 990.0,
    }  # fmt: skip
