"""What pages are worth: the figures are those of the workload, and the ledger does what a server's ledger does."""

from __future__ import annotations

import random

import pytest

from actors.pages.eviction.choice import EvictionName
from ops.bench.cache.page_capacity import log_uniform, measure_capacity, measure_ledger


def test_mixed_lengths_fit_three_times_as_often_into_pages() -> None:
    figures = measure_capacity(n_pages=8192, least=128, most=8192)
    assert figures.contiguous == 16
    assert figures.ratio >= 3.0
    assert 0.9 < figures.used_share <= 1.0


def test_equal_lengths_fit_as_often() -> None:
    figures = measure_capacity(n_pages=640, least=160, most=160)
    assert (figures.contiguous, figures.paged, figures.used_share) == (64, 64.0, 1.0)


def test_each_power_of_two_is_as_likely() -> None:
    chance = random.Random(1)
    lengths = [log_uniform(chance, 16, 4096) for _ in range(4000)]
    assert (min(lengths), max(lengths)) >= (16, 4000)
    assert 900 < sum(length < 64 for length in lengths) < 1100


@pytest.mark.parametrize("policy", [EvictionName.LRU, EvictionName.W_TINYLFU, EvictionName.ADAPTIVE])
def test_the_measured_ledger_evicts_for_each_page(policy: EvictionName) -> None:
    times = measure_ledger(n_pages=300, n_rows=8, least=16, most=256, policy=policy)
    assert times.mean_s > 0
    assert times.evictions > 500
