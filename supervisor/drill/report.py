"""The report of a drill: a table and bars on the terminal, an SVG of both, and JSON."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from supervisor.drill.figures import FaultRow

_BAR_CHARACTERS = 30
_WIDE_COLUMNS = 120
# columns that are shown where one row has more than 0: the field of a row, and the digits behind the point
_OPTIONAL = {"calm": ("calm_p99_ms", 0), "steps": ("pause_steps_p99", 1), "healed": ("healed_max_ms", 0)}


def print_report(rows: Sequence[FaultRow], title: str, console: Console) -> None:
    """Print one line for each fault; on a wide console with a bar of its p99 pause on a logarithmic scale."""
    has_bars = console.width >= _WIDE_COLUMNS
    optional = {name: form for name, form in _OPTIONAL.items() if any(getattr(row, form[0]) for row in rows)}
    gap = (0, 1, 0, 0) if has_bars else 0  # 80 columns have room for the name of any fault of ours, but not for wide gaps
    style = {"box": box.SIMPLE_HEAD, "show_edge": has_bars, "pad_edge": False, "padding": gap}
    table = Table(**style)
    table.add_column("fault", overflow="fold")
    for name in ("streams", "lost", "wrong", "p50", "p99", "max", *optional, "back"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_bars:
        table.add_column("p99 pause: 1 ms to 100 s", no_wrap=True, min_width=_BAR_CHARACTERS)
    for row in rows:
        back = "never" if row.back_max_s == math.inf else f"{row.back_max_s:.2f}"
        lengths = (row.pause_p50_ms, row.pause_p99_ms, row.pause_max_ms)
        pauses = [f"{length:.0f}" if row.has_pauses else "-" for length in lengths]
        values = [f"{value:.{digits}f}" if (value := getattr(row, key)) else "-" for key, digits in optional.values()]
        counts = (str(row.streams), _marked(row.lost), _marked(row.wrong))
        bars = (bar(row.pause_p99_ms),) if has_bars else ()
        table.add_row(row.fault, *counts, *pauses, *values, back, *bars)
    console.print(f"{title} (pauses in ms, back in s)", style="italic", markup=False, highlight=False)
    console.print(table)


def bar(pause_ms: float) -> str:
    """A bar on a logarithmic scale: empty at 1 ms, full at 100 s."""
    share = min(max(math.log10(max(pause_ms, 1.0)) / 5.0, 0.0), 1.0)
    return "█" * round(share * _BAR_CHARACTERS)


def write_svg(rows: Sequence[FaultRow], title: str, path: Path) -> None:
    """Draw the same table as an SVG."""
    console = Console(record=True, width=140, file=io.StringIO())
    print_report(rows, title, console)
    path.write_text(console.export_svg(title=title))


def write_json(result: dict[str, object], path: Path) -> None:
    """Write the result of a drill. Raises: OSError."""
    path.write_text(json.dumps(result, indent=2) + "\n")


def _marked(count: int) -> str:
    return f"[red]{count}[/red]" if count else "0"
