"""What the bench of policies in real servers makes of its tokens, and that it measures one whose scheduler is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.bench.commands.scheduling.served_policies import command
from ops.bench.policies.served_load import TenantTokens, largest_distance


def test_the_largest_distance_is_that_of_the_worst_ten_seconds() -> None:
    even = TenantTokens("a", [(second * 0.5, 3) for second in range(60)])
    other = TenantTokens("b", [(second * 0.5, 3) for second in range(60)])
    assert largest_distance((even, other), 0.5, (0.0, 30.0)) == 0.0
    other.got = [(at_s, 9 if 12.0 <= at_s < 22.0 else 3) for at_s, _ in other.got]
    assert largest_distance((even, other), 0.5, (0.0, 30.0)) == pytest.approx(0.25)
    assert largest_distance((even, other), 0.5, (0.0, 9.0)) == 0.0, "there are no ten seconds"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("subject", ["shares", "deadlines"])
def test_a_real_server_is_measured_while_its_scheduler_dies(subject: str, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    policy = "fair" if subject == "shares" else "sla"
    small = ("--duration", "14", "--replicas", "1", "--gateways", "1", "--kill-scheduler")
    done = CliRunner().invoke(command, ["--subject", subject, "--policy", policy, *small, "--load", "0.95", "--out", str(out)])
    assert done.exit_code == 0, done.output
    figures = json.loads(out.read_text())["policies"][policy]
    assert figures["errors"] == 0, "a death of a scheduler is no error"
    if subject == "shares":
        assert figures["tokens_per_s"] > 0
        assert 0.0 < figures["part"] < 1.0
    else:
        assert figures["with_deadline"] > 0
        assert 0.0 <= figures["in_time"] <= 1.0
