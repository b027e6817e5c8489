"""The report of a long run: tables of tenants and deaths, and a line of its minutes, on a terminal or as an SVG."""

from __future__ import annotations

import io
import math
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ops.bench.day.visits import DayFigures, Minute

_SHADES = "▁▂▃▄▅▆▇█"
_A_LINE = 60  # minutes
_STYLE = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0), "title_justify": "left"}


def print_day(figures: DayFigures, title: str, console: Console) -> None:
    """Print the whole report."""
    n_failed = figures.requests - round(figures.availability * figures.requests)
    console.print(f"[bold]{escape(title)}[/bold]", highlight=False)
    counts = f"{n_failed} failed: {figures.refused} refused, {figures.lost} lost, {figures.wrong} wrong"
    repairs = f"repaired after {_seconds(figures.repair_p99_s)} (p99)"
    console.print(
        f"availability {figures.availability:.4%} of {figures.requests} requests; {counts}; {repairs}", highlight=False
    )
    console.print(_tenants(figures))
    console.print(_deaths(figures))
    for line in minute_lines(figures):
        console.print(line, highlight=False)
    for error, n in figures.errors:
        console.print(f"[red]{n} x {escape(error)}[/red]", highlight=False)


def minute_lines(figures: DayFigures) -> list[str]:
    """The minutes of the run, an hour in a line: the height is the number of requests, red ones have a request that failed."""
    most = max((minute.requests for minute in figures.minutes), default=0)
    cells = [_cell(minute, most) for minute in figures.minutes]
    return [f"minute {at:>4}  " + "".join(cells[at : at + _A_LINE]) for at in range(0, len(cells), _A_LINE)]


def write_day_svg(figures: DayFigures, title: str, path: Path) -> None:
    """Draw the same report as an SVG. Raises: OSError."""
    console = Console(record=True, width=120, file=io.StringIO())
    print_day(figures, title, console)
    path.write_text(console.export_svg(title="availability"))


def day_as_json(figures: DayFigures) -> dict[str, object]:
    """All figures, for a file. An infinite time is null."""
    return {key: _plain(value) for key, value in asdict(figures).items()}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if value == math.inf else value


def _cell(minute: Minute, most: int) -> str:
    shade = _SHADES[min(minute.requests * len(_SHADES) // (most + 1), len(_SHADES) - 1)]
    return f"[red]{shade}[/red]" if minute.failed else shade


def _tenants(figures: DayFigures) -> Table:
    table = Table(title="tenants (first text in ms)", **_STYLE)
    table.add_column("tenant")
    for name in ("requests", "failed", "pieces", "p50", "p99"):
        table.add_column(name, justify="right")
    for row in figures.tenants:
        failed = f"[red]{row.failed}[/red]" if row.failed else "0"
        times = (f"{row.first_p50_ms:.0f}", f"{row.first_p99_ms:.0f}")
        table.add_row(row.tenant, str(row.requests), failed, str(row.pieces), *times)
    return table


def _deaths(figures: DayFigures) -> Table:
    table = Table(title="deaths (longest gaps of streams in ms, repairs in s)", **_STYLE)
    table.add_column("role")
    for name in ("deaths", "gap p50", "gap p99", "repair p50", "repair p99"):
        table.add_column(name, justify="right")
    for row in figures.deaths:
        repairs = (_seconds(row.repair_p50_s), _seconds(row.repair_p99_s))
        table.add_row(row.role, str(row.deaths), f"{row.gap_p50_ms:.0f}", f"{row.gap_p99_ms:.0f}", *repairs)
    return table


def _seconds(value: float) -> str:
    return "never" if value == math.inf else f"{value:.2f} s"
