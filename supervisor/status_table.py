"""A status report as a table for people or as JSON for programs."""

from __future__ import annotations

import sys

import msgspec

from messages.lifecycle import ChildStatus, StatusReport

_PLAIN_WIDTH = 160  # where there is no terminal
_HEADINGS = ("actor", "state", "life", "pid", "restarts", "up", "beat", "steps", "")


def print_status(report: StatusReport, as_json: bool) -> None:
    """Print to standard output."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)
    console.print(f"[bold]{report.state}[/bold]  {report.model}  {report.url}  up {report.uptime_s:.0f} s")
    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        is_text = heading in ("actor", "state", "")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True, ratio=None if heading else 1)
    for child in report.children:
        table.add_row(*_cells(child))
    console.print(table)


def _cells(child: ChildStatus) -> tuple[str, ...]:
    numbers = ", ".join(f"{key} {value:g}" for key, value in sorted(child.statistics.items()) if value)
    return (
        child.name,
        child.state,
        str(child.incarnation),
        str(child.pid or "-"),
        str(child.restarts),
        f"{child.uptime_s:.0f} s",
        f"{child.beat_age_s:.1f} s",
        str(child.steps),
        child.phase or numbers,
    )
