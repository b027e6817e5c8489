"""The workloads with cliffs: on a simulated device, and against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.bench.commands.cliffs import MeasuredStream, command, figures_of
from tests.support.real_server import real_server


def test_figures() -> None:
    streams = [MeasuredStream(10, 0.0, [1.0, 1.5, 1.6]), MeasuredStream(1000, 0.5, [3.5, 4.5])]
    figures = figures_of(streams)
    assert (figures["wall_s"], figures["chunks_per_s"]) == (4.5, round(5 / 4.5, 1))
    assert (figures["gap_ms"]["count"], figures["gap_ms"]["max"]) == (3, 1000.0)
    assert (figures["first_short_ms"]["p50"], figures["first_long_ms"]["p50"]) == (1000.0, 3000.0)


def lines_of(tmp_path: Path, *arguments: str) -> list[dict]:
    """What the command writes."""
    out = tmp_path / "out.jsonl"
    done = CliRunner().invoke(command, [*arguments, "--out", str(out)])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_time_for_steps_bounds_the_gaps_beside_a_long_prompt(tmp_path: Path) -> None:
    (free,) = lines_of(tmp_path, "--simulate", "--workload", "long-prompt", "--scale", "0.2")
    _, bounded = lines_of(tmp_path, "--simulate", "--workload", "long-prompt", "--scale", "0.2", "--step-s", "0.02")
    assert bounded["gap_ms"]["p99"] < free["gap_ms"]["p99"] / 2


@pytest.mark.slow
def test_a_server_is_measured(tmp_path: Path) -> None:
    with real_server("--model", "hash-chain") as server:
        found = lines_of(tmp_path, "--url", server.url, "--workload", "burst", "--workload", "long-prompt", "--scale", "0.03")
    assert [one["workload"] for one in found] == ["burst", "long-prompt"]
    assert found[1]["first_long_ms"]["count"] == 1
