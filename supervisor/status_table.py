"""A status report as a table for people or as JSON for programs."""

from __future__ import annotations

import sys

import msgspec

from messages.lifecycle import StatusReport


def print_status(report: StatusReport, as_json: bool) -> None:
    """Print to standard output."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout)
    console.print(f"[bold]{report.state}[/bold]  {report.model}  {report.url}  up {report.uptime_s:.0f} s", highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("actor", "state", "life", "pid", "restarts", "up s", "beat s", "steps", ""):
        table.add_column(heading, justify="left" if heading in ("actor", "state", "") else "right")
    for child in report.children:
        numbers = ", ".join(f"{key} {value:g}" for key, value in sorted(child.statistics.items()))
        cells = (child.incarnation, child.pid or "-", child.restarts, f"{child.uptime_s:.0f}", f"{child.beat_age_s:.1f}")
        table.add_row(child.name, child.state, *map(str, cells), str(child.steps), child.phase or numbers)
    console.print(table)
