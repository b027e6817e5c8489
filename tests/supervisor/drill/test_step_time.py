"""The time of a step, from the metrics of a server."""

from __future__ import annotations

from supervisor.drill.step_time import StepsSoFar, parse_steps, step_ms_between

TEXT = """# HELP tardigrade_worker_step_seconds Time of one step on the device.
# TYPE tardigrade_worker_step_seconds histogram
tardigrade_worker_step_seconds_bucket{actor="worker/0.0",le="0.05"} 3.0
tardigrade_worker_step_seconds_count{actor="worker/0.0"} 10.0
tardigrade_worker_step_seconds_sum{actor="worker/0.0"} 0.5
tardigrade_worker_step_seconds_count{actor="worker/1.0"} 30.0
tardigrade_worker_step_seconds_sum{actor="worker/1.0"} 2.5
tardigrade_worker_rows_count{actor="worker/1.0"} 99.0
"""


def test_the_steps_of_all_workers_are_summed_up() -> None:
    assert parse_steps(TEXT) == StepsSoFar(40.0, 3.0)
    assert parse_steps("tardigrade_worker_step_seconds_count 2.0\ntardigrade_worker_step_seconds_sum 0.25\n") == StepsSoFar(
        2, 0.25
    )
    assert parse_steps("vllm:request_success_total 4.0\n") == StepsSoFar()


def test_the_mean_is_that_of_the_steps_between_two_answers() -> None:
    assert step_ms_between(StepsSoFar(10, 0.5), StepsSoFar(30, 1.5)) == 50.0
    assert step_ms_between(StepsSoFar(10, 0.5), StepsSoFar(10, 0.5)) == 50.0, "no beat came meanwhile"
    assert step_ms_between(StepsSoFar(10, 0.5), StepsSoFar(4, 0.4)) == 100.0, "the worker is another one"
    assert step_ms_between(StepsSoFar(), StepsSoFar()) == 0.0
