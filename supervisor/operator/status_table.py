"""A status report as a table for people or as JSON for programs."""

from __future__ import annotations

import sys

import msgspec

from messages.lifecycle import ChildState, ChildStatus, StatusReport

_PLAIN_WIDTH = 240  # where there is no terminal
_HEADINGS = ("actor", "state", "life", "pid", "up", "beat", "memory", "steps", "restarts", "left", "spare", "")
_TEXTS = ("actor", "state", "spare", "")


def print_status(report: StatusReport, as_json: bool) -> None:
    """Print to standard output."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)
    console.print(f"[bold]{report.state}[/bold]  {report.model}  {report.url}  up {span_text(report.uptime_s)}")
    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in _TEXTS else "right", no_wrap=bool(heading))
    for child in report.children:
        table.add_row(*_cells(child))
    console.print(table)


def _cells(child: ChildStatus) -> tuple[str, ...]:
    return (
        child.name,
        child.state,
        str(child.incarnation),
        str(child.pid or "-"),
        span_text(child.uptime_s) if child.pid else "-",
        f"{child.beat_age_s:.1f} s" if child.pid else "-",
        f"{child.memory_bytes / 1e6:,.0f} MB" if child.memory_bytes else "-",
        str(child.steps),
        str(child.restarts),
        str(child.restarts_left),
        "warm" if child.has_spare else "-",
        _note(child),
    )


def _note(child: ChildStatus) -> str:
    """What it is doing, or its figures; then how its last life ended."""
    numbers = ", ".join(f"{key} {value:g}" for key, value in sorted(child.statistics.items()) if value)
    ended = f"last life: {child.last_exit}, {span_text(child.last_exit_age_s)} ago" if child.last_exit else ""
    is_told = child.state is ChildState.DEAD and child.last_exit.startswith(
        child.phase
    )  # else a phase says why it is not back yet
    now = "" if is_told else child.phase or numbers
    return "; ".join(part for part in (now, ended) if part)


def span_text(span_s: float) -> str:
    """A time in two units at most: "59 s", "3 min 20 s", "2 h 5 min", "4 d 1 h"."""
    seconds = int(span_s)
    for size, unit, small, small_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // small} {small_unit}"
    return f"{seconds} s"
