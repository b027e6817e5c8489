"""`ops/gpu/four.sh`, which sets the environment and calls this: all runs on four devices within nine minutes, one JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click

from ops.bench.machine import describe_machine
from ops.gpu.four.runs import FIGURES, all_runs
from ops.gpu.four.timetable import RunOutcome, TimedRun, in_time

_TAIL_BYTES = 4_000
_RESULT = "RESULT "  # what a peer prints before its JSON
_END_S = 30.0


@click.command(context_settings={"show_default": True})
@click.argument("only", nargs=-1)
@click.option("--models", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True,
              help="The folders llama8b and llama70b: config.json and a tokenizer; weights are random.")  # fmt: skip
@click.option(
    "--peer", "peers", multiple=True, help="NAME=COMMAND of another engine, which prints RESULT and JSON; repeatable."
)
@click.option("--limit-s", default=540.0, help="For all runs together.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("four.json"))
def command(only: tuple[str, ...], models: Path, peers: tuple[str, ...], limit_s: float, out: Path) -> None:
    """Run all that needs four devices, or ONLY the named runs in their order. Exit status 1 if one failed or had no time."""
    known = all_runs(models, dict(_named(peer) for peer in peers))
    if unknown := [name for name in only if name not in known]:
        raise click.UsageError(f"run: expected {', '.join(known)}, got {', '.join(unknown)}")
    chosen = [known[name] for name in only] if only else list(known.values())
    outcomes = in_time(chosen, limit_s, begin, time.monotonic)
    found = {"bench": "four", "machine": describe_machine(), "runs": [asdict(outcome) for outcome in outcomes]}
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(outcome.status != 0 for outcome in outcomes))


def _named(peer: str) -> tuple[str, str]:
    name, found, rest = peer.partition("=")
    if not (name and found and rest):
        raise click.UsageError(f"peer: expected NAME=COMMAND, got {peer!r}")
    return name, rest


def begin(run: TimedRun, limit_s: float) -> RunOutcome:
    """Run a program to its end, or for so many seconds: then SIGTERM, so that it ends its server."""
    began_s, why = time.monotonic(), ""
    with tempfile.TemporaryDirectory(prefix="tardigrade-four-") as folder:
        figures, printed = Path(folder, "figures"), Path(folder, "printed")
        arguments = [str(figures) if word == FIGURES else word for word in run.arguments]
        with printed.open("wb") as file:
            process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **run.environment}
            )
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                why = f"ended after {limit_s:.0f} s"
                _end(process)
        text = printed.read_text(encoding="utf-8", errors="replace")
        lines = figures.read_text(encoding="utf-8").splitlines() if figures.exists() else []
    lines += [line.removeprefix(_RESULT) for line in text.splitlines() if line.startswith(_RESULT)]
    took_s = round(time.monotonic() - began_s, 1)
    click.echo(f"{run.name}: status {process.returncode} after {took_s} s {why}", err=True)
    status = None if why else process.returncode
    return RunOutcome(run.name, status, took_s, why, [json.loads(line) for line in lines], text[-_TAIL_BYTES:])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    command()
