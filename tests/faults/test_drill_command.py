"""`supervisor drill` against a real server: it finds nothing wrong with a killed worker, and it finds what is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_server import real_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def drill(url: str, run_dir: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    small = ("--rounds", "1", "--streams", "4", "--max-tokens", "120", "--readers", "2", "--run-dir", str(run_dir))
    command = [sys.executable, "-m", "supervisor", "drill", url, *small, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_drill_reports_what_happened(tmp_path: Path) -> None:
    with real_server("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01") as server:
        report, picture = tmp_path / "drill.json", tmp_path / "drill.svg"
        files = ("--json", str(report), "--svg", str(picture))
        pid = next(child.pid for child in server.status().children if child.name == "scheduler/0")
        faults = ("--fault", "kill:worker", "--fault", f"kill:pid={pid}")
        done = drill(server.url, server.run_dir, *faults, "--rounds", "2", *files)
        assert done.returncode == 3, "the process with that id can be killed once" + done.stdout + done.stderr
        result = json.loads(report.read_text())
        assert [(row["fault"], row["rounds"], row["lost"], row["wrong"]) for row in result["rows"]] == [
            ("no fault", 1, 0, 0),
            ("kill:worker", 2, 0, 0),
            (f"kill:pid={pid}", 1, 0, 0),
        ]
        assert all(row["right"] == 4 * row["rounds"] and row["pause_max_ms"] > 0 for row in result["rows"])
        assert [line.partition(": ")[0] for line in result["stopped"]] == [f"kill:pid={pid}"]
        assert picture.read_text().startswith("<svg")

        nobody = drill(server.url, server.run_dir, "--fault", "run:exit 3")
        assert nobody.returncode == 2
        assert "exit status 3" in nobody.stderr

        say_what_was_measured_until_the_signal(server.run_dir, report, signal.SIGTERM)


def say_what_was_measured_until_the_signal(run_dir: Path, report: Path, number: int) -> None:
    """A drill that finds its server by the run directory alone, and is ended after its first fault."""
    small = ("--rounds", "1000", "--streams", "4", "--max-tokens", "60", "--fault", "kill:worker", "--json", str(report))
    command = [sys.executable, "-m", "supervisor", "drill", "--run-dir", str(run_dir), *small]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).startswith("kill:worker 1/1000: "):
            assert line, "the drill has ended"
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == 3
    result = json.loads(report.read_text())
    assert result["stopped"] == ["kill:worker: interrupted"]
    assert [row["lost"] + row["wrong"] for row in result["rows"]] == [0, 0]


def test_no_server_is_said_in_one_line(tmp_path: Path) -> None:
    done = drill("http://127.0.0.1:9", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("supervisor: url: expected an OpenAI-compatible server at http://127.0.0.1:9, got ")
    assert done.stderr.count("\n") == 1
