"""`directory`: how far the cache directory is behind, and how fast it answers, beside a bare round trip in the same run.

python -m ops.bench directory --turns 5000 --hashes 100000
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path

import click
import uvloop
from rich.table import Table

from ops.bench.directory.round_trips import DirectoryPair, DirectoryTimes
from ops.bench.machine import describe_machine
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import summarize

_ROWS = {
    "bare_s": "bare ZeroMQ round trip of the two processes",
    "answer_s": "question to answer",
    "lag_s": "update sent to visible",
}


@click.command(context_settings={"show_default": True})
@click.option("--turns", type=click.IntRange(min=100), default=3000, help="Each: a bare round trip, a question, two updates.")
@click.option("--hashes", type=click.IntRange(min=64), default=100_000, help="Pages that the directory knows.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(turns: int, hashes: int, out: str | None) -> None:
    """Times of updates and questions of 64 pages to a cache directory in another process."""
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="tg-") as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        times = runner.run(_measure(Path(folder), turns, hashes))
    summaries = {name: summary.scaled(1000) for name in _ROWS if (summary := summarize(asdict(times)[name])) is not None}
    table = Table("ms", *next(iter(summaries.values())), title=f"{hashes} pages known, 64 in each message")
    for name, summary in summaries.items():
        table.add_row(_ROWS[name], *(str(value) for value in summary.values()))
    CONSOLE.print(table)
    cpu_ms = round(times.directory_cpu_s * 1000, 3)
    CONSOLE.print(f"processor time of the directory: {cpu_ms} ms a turn (three questions, two updates, its start)")
    write_json({"machine": machine, "times_ms": summaries, "cpu_ms_a_turn": cpu_ms}, out)


async def _measure(folder: Path, turns: int, hashes: int) -> DirectoryTimes:
    pair = DirectoryPair(folder, hashes)
    try:
        await pair.begin()
        return await pair.measure(turns)
    finally:
        await pair.close()
