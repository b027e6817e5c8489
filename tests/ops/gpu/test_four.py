"""The runs on four devices: what fits into the time, and that each of their command lines can be used."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ops.gpu.four.__main__ import begin, command
from ops.gpu.four.runs import FIGURES, all_runs
from ops.gpu.four.timetable import RunOutcome, TimedRun, in_time


def test_a_run_that_does_not_fit_is_named_and_the_next_one_is_tried() -> None:
    now_s, begun = [0.0], []

    def take(run: TimedRun, limit_s: float) -> RunOutcome:
        begun.append((run.name, limit_s))
        now_s[0] += run.expected_s
        return RunOutcome(run.name, 0)

    runs = [TimedRun("a", (), 60.0), TimedRun("b", (), 50.0), TimedRun("c", (), 30.0)]
    outcomes = in_time(runs, 100.0, take, lambda: now_s[0])
    assert begun == [("a", 100.0), ("c", 40.0)]
    assert [outcome.status for outcome in outcomes] == [0, None, 0]
    assert outcomes[1].why == "needs about 50 s, and 40 s were left"


def test_figures_of_a_program_and_of_a_peer_are_kept_and_a_failure_is_told() -> None:
    program = "import sys; open(sys.argv[1], 'w').write('{\"a\": 1}'); print('RESULT {\"b\": 2}'); print('end'); sys.exit(3)"
    outcome = begin(TimedRun("one", (sys.executable, "-c", program, FIGURES), 60.0), 60.0)
    assert (outcome.status, outcome.figures, outcome.tail.splitlines()[-1]) == (3, [{"a": 1}, {"b": 2}], "end")


def test_a_run_that_takes_too_long_is_ended() -> None:
    outcome = begin(TimedRun("one", ("sleep", "600"), 60.0), 0.05)
    assert outcome.status is None
    assert outcome.why.startswith("ended after")


def test_every_command_line_can_be_used(tmp_path: Path) -> None:
    checked = 0
    for run in all_runs(tmp_path).values():
        module, *arguments = run.arguments[2:]
        if module in ("pytest", "ops.gpu.sums_sweep"):  # they have no options of ours
            continue
        found = importlib.import_module(module if module != "ops.bench" else "ops.bench.commands.gpu_batch").command
        assert isinstance(found, click.Command)
        found.make_context(run.name, list(arguments if module != "ops.bench" else arguments[1:]))
        checked += 1
    assert checked >= 6


def test_names_and_peers_are_checked(tmp_path: Path) -> None:
    refused = CliRunner().invoke(command, ["--models", str(tmp_path), "no-such-run"])
    assert refused.exit_code == 2
    assert "expected sums, 8b-tp4" in refused.output
    assert CliRunner().invoke(command, ["--models", str(tmp_path), "--peer", "no-command"]).exit_code == 2


@pytest.mark.parametrize(("code", "status"), [("import sys; sys.exit(0)", 0), ("import sys; sys.exit(5)", 1)])
def test_the_result_is_one_document(tmp_path: Path, code: str, status: int) -> None:
    out = tmp_path / "four.json"
    peer = f"p={sys.executable} -c '{code}'"
    result = CliRunner().invoke(command, ["peer-p", "--models", str(tmp_path), "--peer", peer, "--out", str(out)])
    assert result.exit_code == status
    assert [run["name"] for run in json.loads(out.read_text())["runs"]] == ["peer-p"]
