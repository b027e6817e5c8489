"""Which programs `ops/gpu/four.sh` runs on four devices, and how long each takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.gpu.four.timetable import TimedRun

FIGURES = "{figures}"  # stands for the file that a program appends its JSON to
_TP_4 = ("--gpus", "4", "--tp", "4")
_SHAPES = {"8b": "llama8b", "70b": "llama70b"}


def all_runs(models: Path, peers: Mapping[str, str] | None = None) -> dict[str, TimedRun]:
    """Every run by its name, in the order in which they are done. `models`: a folder with folders llama8b and llama70b, each
    with a configuration and a tokenizer; weights are random. `peers`: commands of other engines by name, which print a line
    `RESULT` with JSON; each runs after ours."""
    small, large = (str(models / folder) for folder in _SHAPES.values())
    runs = [
        TimedRun("sums", _python("ops.gpu.sums_sweep"), 30.0),
        TimedRun("8b-tp4", _batch(small, *_TP_4), 80.0),
        *(TimedRun(f"peer-{name}", ("bash", "-c", command), 190.0) for name, command in (peers or {}).items()),
        TimedRun("8b-replicas", _replicas(small, 256, "--gateways", "4"), 90.0),
        TimedRun("smollm2-replicas", _replicas("smollm2", 512, "--gateways", "8"), 60.0),
        TimedRun("70b-tp4", _batch(large, *_TP_4, "--batches", "1,64"), 90.0),
        TimedRun("drill-standby", _drill(small, ("kill:worker", "pause:worker:5", "kill:gateway", "kill:scheduler"), 4), 150.0),
        TimedRun("drill-no-standby", _drill(small, ("kill:worker",), 2, "--no-standby"), 60.0),
        TimedRun("tests", _tests(), 200.0),
    ]
    return {run.name: run for run in runs}


def _python(*arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", *arguments)


def _batch(model: str, *more: str) -> Sequence[str]:
    return _python("ops.bench", "gpu-batch", "--model", model, "--short", "--mode", "server", *more, "--out", FIGURES)


def _replicas(model: str, streams: int, *server: str) -> Sequence[str]:
    return _python("ops.gpu.four.replicas", "--model", model, "--streams", str(streams), *_passed(server), "--out", FIGURES)


def _drill(model: str, faults: Sequence[str], rounds: int, *server: str) -> Sequence[str]:
    chosen = [word for fault in faults for word in ("--fault", fault)]
    asked = ("--model", model, *chosen, "--rounds", str(rounds), "--streams", "256", *_passed((*_TP_4, *server)))
    return _python("ops.gpu.four.own_drill", *asked, "--out", FIGURES)


def _passed(server: Sequence[str]) -> Sequence[str]:
    return [word for argument in server for word in ("--server-arg", argument)]


def _tests() -> Sequence[str]:
    """The tests that need four devices, and those of two that they contain."""
    return _python(
        "pytest", "-p", "no:cacheprovider", "-m", "gpu", "-q", "-rfEs", "tests/gpu", "-k", "tp or replicas or exchange"
    )
