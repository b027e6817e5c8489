"""The rates of a replica: of the time in which it had something to run."""

from __future__ import annotations

import pytest

from actors.scheduler.load.throughput import Throughput


def test_the_rates_are_those_of_the_last_seconds() -> None:
    throughput = Throughput()
    assert (throughput.prefill_rate, throughput.decode_rate) == (0.0, 0.0)
    for i in range(100):
        throughput.read(i / 10, 50 * i, 2 * i, is_queued=True)
    assert throughput.prefill_rate == pytest.approx(500.0)
    assert throughput.decode_rate == pytest.approx(20.0)
    for i in range(100):  # ten times as slow from now on
        throughput.read(10 + i, 4950 + 50 * i, 198 + 2 * i, is_queued=True)
    assert throughput.prefill_rate == pytest.approx(50.0, rel=0.01)


def test_time_in_which_nothing_runs_does_not_count() -> None:
    throughput = Throughput()
    throughput.read(0.0, 0, 0, is_queued=True)
    throughput.read(1.0, 100, 10, is_queued=True)
    throughput.rest()
    throughput.read(1000.0, 100, 10, is_queued=True)
    throughput.read(1001.0, 200, 20, is_queued=True)
    assert throughput.prefill_rate == pytest.approx(100.0)


@pytest.mark.parametrize("now_s", [1.0, 0.5])
def test_a_clock_that_stands_still_or_goes_back_adds_nothing(now_s: float) -> None:
    throughput = Throughput()
    throughput.read(0.0, 0, 0, is_queued=True)
    throughput.read(1.0, 100, 10, is_queued=True)
    throughput.read(now_s, 500, 50, is_queued=True)
    assert throughput.prefill_rate == pytest.approx(100.0)


def test_a_replica_for_which_nothing_waits_keeps_the_pace_that_it_had() -> None:
    throughput = Throughput()
    for i in range(50):
        throughput.read(i / 10, 300 * i, 0, is_queued=True)
    for i in range(600):  # one sequence is generated, and a new one waits for a moment each second
        throughput.read(5 + i / 10, 14_700, 2 * i, is_queued=i % 10 == 0)
    assert throughput.prefill_rate + throughput.decode_rate == pytest.approx(3000.0, rel=0.1)


def test_a_replica_for_which_nothing_has_waited_has_the_most_that_it_has_computed() -> None:
    throughput = Throughput()
    for i in range(100):
        throughput.read(i / 10, 100 * (i // 10), 2 * i, is_queued=False)
    assert throughput.prefill_rate + throughput.decode_rate >= 100.0
    before = throughput.prefill_rate
    for i in range(100):
        throughput.read(10 + i / 10, 900, 198 + i, is_queued=False)
    assert throughput.prefill_rate == before
