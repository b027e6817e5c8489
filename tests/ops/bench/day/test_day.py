"""A short day: two tenants, deaths of all roles, and every request is answered rightly."""

from __future__ import annotations

import pytest

from ops.bench.day.day import DayPlan, run_day


@pytest.mark.long
def test_a_server_whose_processes_die_answers_every_request() -> None:
    lines = list[str]()
    plan = DayPlan(
        model="hash-chain", length_s=40.0, n_tenants=4, n_clients=24, think_s=1.0, prompt_words=60, output_tokens=128,
        kill_every_s=4.0, deadline_s=120.0, step_ms=5.0, roles=(), server_args=("--gateways", "2", "--replicas", "2"), seed=5,
    )  # fmt: skip
    figures = run_day(plan, lines.append)
    assert figures.availability == 1.0, (figures.errors, lines)
    assert figures.requests > 24
    assert sum(row.deaths for row in figures.deaths) >= 5, lines
    assert len(figures.tenants) == 4
