"""What a rank counts of its results."""

from __future__ import annotations

import math

import msgspec

from gpu_workers.process.metrics import WorkerMetrics
from messages.steps import Result
from tests.support.examples.messages import INTERNAL


def test_a_step_of_unknown_time_is_counted_and_its_time_is_not() -> None:
    metrics = WorkerMetrics()
    result = next(message for message in INTERNAL if isinstance(message, Result))
    for compute_s in (0.5, math.nan, 0.25):
        metrics.count_result(msgspec.structs.replace(result, compute_s=compute_s))
    samples = {sample.name: sample.value for family in metrics.collect() for sample in family.samples}
    assert samples["tardigrade_worker_step_seconds_sum"] == 0.75
    assert metrics.steps == 3
