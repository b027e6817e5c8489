"""`supervisor bench` against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.supervisor.command_line import call, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_our_server_and_any_other_by_its_url(tmp_path: Path) -> None:
    flags = ("--requests", "4", "--concurrency", "2", "--input", "8", "--output", "4")
    with serving(tmp_path / "d") as server:
        ours = json.loads(call("bench", "--json", *flags, "--run-dir", str(server.run_dir)).stdout)
        other = call("bench", server.status()["url"].removeprefix("http://"), *flags)
    assert ours["requests"]["good"] == 4
    assert ours["plan"]["input_lengths"] == "8"
    assert other.returncode == 0, other.stderr
    assert "closed loop, 2 clients" in other.stdout
    assert call("bench", *flags, "--run-dir", str(tmp_path / "none")).returncode == 6
    away = call("bench", "http://127.0.0.1:9", *flags)
    assert (away.returncode, away.stderr) == (6, "supervisor: http://127.0.0.1:9: Connection refused\n")
