"""Percentiles, summaries and arrival times against slow but obvious definitions."""

from __future__ import annotations

import itertools
import random
import statistics as reference

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.bench.statistics import auc, percentile, poisson_arrivals, summarize

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=200)


@given(VALUES, st.integers(1, 99))
def test_percentiles_agree_with_the_standard_library(values: list[float], percent: int) -> None:
    expected = reference.quantiles(values, n=100, method="inclusive")[percent - 1]
    assert percentile(sorted(values), percent / 100) == pytest.approx(expected, abs=1e-6)


@given(VALUES)
def test_a_summary_stands_in_order(values: list[float]) -> None:
    summary = summarize(values)
    assert summary is not None
    assert min(values) <= summary.p50 <= summary.p90 <= summary.p99 <= summary.max == max(values)
    assert summary.mean == pytest.approx(reference.fmean(values), abs=1e-6)
    assert summary.count == len(values)


@pytest.mark.parametrize(("lower", "higher", "share"), [([1, 2], [3, 4], 1.0), ([3, 4], [1, 2], 0.0), ([1, 3], [2, 3], 0.625)])
def test_how_well_two_samples_are_told_apart(lower: list[float], higher: list[float], share: float) -> None:
    assert auc(lower, higher) == share
    with pytest.raises(ValueError, match="at least one value"):
        auc(lower, [])


def test_one_value_is_its_own_every_percentile() -> None:
    assert summarize([3.0]).scaled(1000.0) == {  # pyright: ignore[reportOptionalMemberAccess]
        "count": 1, "mean": 3000.0, "p50": 3000.0, "p90": 3000.0, "p99": 3000.0, "max": 3000.0,
    }  # fmt: skip


def test_nothing_has_no_summary() -> None:
    assert summarize([]) is None


@pytest.mark.parametrize(("ordered", "share"), [([], 0.5), ([1.0], 1.1), ([1.0], -0.1)])
def test_percentiles_refuse_what_has_none(ordered: list[float], share: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        percentile(ordered, share)


def test_poisson_arrivals_keep_the_rate_and_vary_like_exponential_gaps() -> None:
    arrivals = list(itertools.islice(poisson_arrivals(50.0, random.Random(7)), 20_000))
    gaps = [b - a for a, b in itertools.pairwise([0.0, *arrivals])]
    assert min(gaps) > 0
    assert reference.fmean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert reference.stdev(gaps) == pytest.approx(1 / 50, rel=0.03)


def test_poisson_arrivals_repeat_with_their_seed() -> None:
    first, second = (list(itertools.islice(poisson_arrivals(3.0, random.Random(1)), 10)) for _ in range(2))
    assert first == second


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(ValueError, match="rate_per_s: expected more than 0"):
        next(poisson_arrivals(0.0, random.Random()))
