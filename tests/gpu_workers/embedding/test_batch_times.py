"""How long batches of texts may take, from those that have ended."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_workers.embedding.batch_times import BatchTimes

LEAST_S = 0.5


def texts(n: int, length: int) -> list[np.ndarray]:
    return [np.zeros(length, np.int32)] * n


def known(took_s: float, *, on_cores: bool = True) -> BatchTimes:
    """A batch of ten texts of 20 tokens has ended three times."""
    times = BatchTimes(LEAST_S, on_cores=on_cores)
    for each_s in (100.0, took_s, took_s + 1.0):  # the first one of a shape may wait for a compiler, others for a core
        times.add(texts(10, 20), each_s)
    return times


def test_without_a_measurement_there_is_no_limit() -> None:
    assert BatchTimes(LEAST_S, on_cores=True).limit_s(texts(1, 8)) == 0.0


def test_a_batch_may_take_ten_times_as_long_as_others_of_its_shape_but_no_less_than_the_least() -> None:
    assert known(0.2).limit_s(texts(10, 21)) == pytest.approx(2.04)
    assert known(0.001).limit_s(texts(10, 20)) == LEAST_S


def test_an_unknown_shape_is_estimated_in_proportion() -> None:
    times = known(0.2)
    assert times.limit_s(texts(40, 20)) == pytest.approx(8.16), "four times as many tokens"
    assert times.limit_s(texts(1, 8)) == pytest.approx(2.04), "a smaller one is not faster for certain"
    assert times.limit_s(texts(1, 200)) > 2.1, "attention of a long text"


def test_on_a_gpu_an_unknown_shape_has_no_limit() -> None:
    times = known(0.2, on_cores=False)
    assert times.limit_s(texts(10, 20)) == pytest.approx(2.04)
    assert times.limit_s(texts(40, 20)) == 0.0


def test_a_fast_batch_is_forgotten_in_time() -> None:
    times = known(0.01)
    for _ in range(300):
        times.add(texts(10, 20), 1.0)
    assert times.limit_s(texts(10, 20)) == 10.0
