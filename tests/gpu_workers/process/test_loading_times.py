"""The phases of a start and their durations."""

from __future__ import annotations

from gpu_workers.process.loading_times import LoadingTimes


def test_a_phase_lasts_until_the_next_begins() -> None:
    now_s = iter([10.0, 11.5, 12.0, 14.25])
    times = LoadingTimes(lambda: next(now_s))
    times.begin("import torch")
    times.begin("weights")
    times.begin("weights")  # reported again at 12.0, which changes nothing
    assert times.seconds() == {"import torch": 1.5, "weights": 2.75}


def test_nothing_reported() -> None:
    assert LoadingTimes().seconds() == {}
