"""Ratios of kinds of servers, and the noise between two servers of one kind."""

from __future__ import annotations

import pytest

from ops.bench.watching.ratios import noise_of, ratio_of


def test_a_ratio_is_that_of_the_same_round_whatever_the_machine_does() -> None:
    off = [[100.0, 10.0, 1000.0], [100.0, 10.0, 1000.0]]
    watched = [[99.0, 9.9, 990.0], [99.0, 9.9, 990.0]]
    ratio = ratio_of(watched, off)
    assert (ratio.p25, ratio.median, ratio.p75) == (0.99, 0.99, 0.99)


def test_a_server_that_is_fast_by_chance_counts_half() -> None:
    assert ratio_of([[121.0, 121.0], [100.0, 100.0]], [[100.0, 100.0]] * 2).median == pytest.approx(1.1)


def test_the_noise_is_the_largest_difference_within_a_kind() -> None:
    assert noise_of([[[100.0, 100.0], [102.0, 102.0]], [[50.0, 50.0], [47.5, 47.5]]]) == pytest.approx(0.0526, abs=1e-4)
    assert noise_of([[[100.0, 100.0]]]) == 0.0
