"""What a scheduler does with requests that cannot be in time: they come later, or are refused if no scheduler has had them."""

from __future__ import annotations

import re

import msgspec
import pytest

from actors.scheduler.sequences.policy import LateRequests, PolicyName
from tests.support.memory_cluster import MemoryCluster
from tests.support.metric_values import metric_value
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected, prompt_of


@pytest.mark.parametrize(("late", "refused"), [(LateRequests.REFUSE, {1}), (LateRequests.DEMOTE, set[int]())])
async def test_late_requests_are_refused_if_that_is_meant_and_they_are_new(
    cluster: MemoryCluster, late: LateRequests, refused: set[int]
) -> None:
    worker = msgspec.structs.replace(WORKER, n_slots=1)
    bench = SchedulerBench(cluster, worker, policy=PolicyName.SLA, late=late)
    await bench.begin()
    bench.gateway.submit(0, prompt_of(0, 20), 60)
    bench.gateway.submit(1, prompt_of(1, 20), 5, deadline_ms=0.001)
    bench.gateway.submit(2, prompt_of(2, 20), 5, deadline_ms=0.001, is_again=True)
    await bench.ended(3)
    assert set(bench.gateway.refused) == refused
    assert all(one.code == "deadline" and not one.retryable for one in bench.gateway.refused.values())
    for refusal in bench.gateway.refused.values():
        got = r"got 0\.001 ms, of which \d+ ms have passed"
        others = r"others that wait here: \d+(, work of about [\d.]+ s)?; come back in \d+ s"
        expected_text = rf"deadline_ms: expected a time that can still be kept, {got}; {others}"
        assert re.fullmatch(expected_text, refusal.detail), refusal.detail
        assert 1.0 <= refusal.retry_after_s <= 60.0
    for attempt in {0, 1, 2} - refused:
        assert bench.gateway.tokens[attempt] == expected(prompt_of(attempt, 20), 5 if attempt else 60)
    assert bench.scheduler.statistics()["late"] == 2.0
    assert metric_value(bench.scheduler.metrics.late) == 2.0
    assert bench.scheduler.statistics()["policy_sla"] == 1.0
