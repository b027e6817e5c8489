"""What the bench of urgent requests makes of its times, and that it measures a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.bench.commands.scheduling.urgent import _figures, command
from ops.bench.urgent.asked import KINDS, UrgentTimes

_SMALL = (
    "--model",
    "hash-chain",
    "--urgent",
    "5",
    "--prompt",
    "40",
    "--others",
    "12",
    "--slots",
    "4",
    "--other-tokens",
    "1000",
)
_SLOTS = ("--server-arg=--max-sequences", "--server-arg=8")
_STEP = ("--server-arg=--set", "--server-arg=worker.hash_chain_step_s=0.02")


def test_ratio_is_of_the_slowest() -> None:
    idle = UrgentTimes({"greedy": [0.010, 0.020], "sampled": [0.010]}, [1, 2, 3])
    busy = UrgentTimes({"greedy": [0.020, 0.030], "sampled": [0.025]}, [1, 2, 4], other_tokens_per_s=99.6, urgent_plans=2)
    found = _figures(idle, busy)
    assert found["p99_ratio"] == pytest.approx(1.5, abs=0.02)
    assert found["in_order_ms"] == [20.0, 25.0, 30.0]  # kinds take turns
    assert (found["other_tokens_per_s"], found["urgent_plans"], found["equal_first_tokens"]) == (100, 2, 2)


@pytest.mark.long
def test_measures_a_server_that_others_saturate(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run = CliRunner().invoke(command, [*_SMALL, *_SLOTS, *_STEP, "--out", str(out)], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    found = json.loads(out.read_text())["servers"]["default"]
    assert set(found["idle"]) == {"all", *KINDS}
    assert found["saturated"]["all"]["count"] == 5
    assert found["urgent_plans"] >= 1
    assert found["other_tokens_per_s"] > 0
    assert found["equal_first_tokens"] == 5  # the same prompts and seeds
