"""A status report as a table for people or as JSON for programs.

A wide terminal gets one line for each actor with all columns. A narrow one (80 columns) gets the most important columns, and
below an actor, if there is anything to report, what it is doing and how its last process ended.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from messages.ids import role_of
from messages.lifecycle.gpu_figures import is_gpu_figure
from messages.lifecycle.tree import ChildState, ChildStatus, StatusReport, TreeState
from supervisor.operator.cache_lines import cache_lines
from supervisor.operator.load_lines import load_lines
from supervisor.usage.gpu_lines import gpu_lines
from supervisor.usage.tenant_lines import is_usage_figure, tenant_lines

_PLAIN_WIDTH = 240  # where there is no terminal
_WIDE = 160  # from here on all columns are shown
_GAP = "  "
_INDENT = "    "


@dataclass(frozen=True)
class _Column:
    """One column: its heading, the cell of a child, and whether a narrow terminal has it too."""

    heading: str
    cell: Callable[[ChildStatus], str]
    is_text: bool = False  # aligned to the left
    in_narrow: bool = True


_COLUMNS = (
    _Column("actor", lambda child: child.name, is_text=True),
    _Column("state", lambda child: state_text(child.state, child.incarnation), is_text=True),
    _Column("incarnation", lambda child: str(child.incarnation), in_narrow=False),
    _Column("pid", lambda child: str(child.pid or "-")),
    _Column("up", lambda child: span_text(child.uptime_s) if child.pid else "-"),
    _Column("beat", lambda child: f"{child.beat_age_s:.1f} s" if child.pid else "-"),
    _Column("memory", lambda child: f"{child.memory_bytes / 1e6:,.0f} MB" if child.memory_bytes else "-"),
    _Column("steps", lambda child: str(child.steps), in_narrow=False),
    _Column("restarts", lambda child: str(child.restarts)),
    _Column("left", lambda child: str(child.restarts_left), in_narrow=False),
    _Column("spare", lambda child: "warm" if child.has_spare else "-", is_text=True, in_narrow=False),
)


def print_status(report: StatusReport, as_json: bool, zeromq: str = "") -> None:
    """Print to standard output, in the width of the terminal ($COLUMNS where it is set). `zeromq`: the endpoint for ZeroMQ
    clients, which the table names."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
        return
    text = status_text(report, shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns, zeromq)
    if sys.stdout.isatty():
        text = text.replace(report.state, f"\033[1m{report.state}\033[0m", 1)
    print(text)


def status_text(report: StatusReport, width: int, zeromq: str = "") -> str:
    """The report in lines of at most `width` characters, as long as names and numbers leave room for that."""
    heads = [
        f"{_state_text(report)}  {report.model}  {report.url}  up {span_text(report.uptime_s)}",
        report.layout,
        _supervisor_text(report),
        f"ZeroMQ: {zeromq}" if zeromq else "",
        *load_lines(report),
        *cache_lines(report),
        *gpu_lines(report),
        *tenant_lines(report),
    ]
    lines = [line for head in heads if head for line in _folded(head, width, "")]
    is_wide = width >= _WIDE
    columns = [column for column in _COLUMNS if is_wide or column.in_narrow]
    rows = [[column.heading for column in columns], *([column.cell(child) for column in columns] for child in report.children)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    table = [_row(columns, cells, widths) for cells in rows]
    lines += ["", table[0].rstrip()]
    for child, row in zip(report.children, table[1:], strict=True):
        if is_wide:
            lines.append(f"{row}{_GAP}{_note(child, with_figures=True)}".rstrip())
        else:
            lines += [row.rstrip(), *_folded(_note(child, with_figures=False), width, _INDENT)]
    return "\n".join(lines)


def requests_left(report: StatusReport) -> int:
    """Requests that the gateways have not finished, as far as their last figures tell."""
    gateways = (child for child in report.children if role_of(child.name) == "gateway")
    return sum(int(gateway.statistics.get("active", 0)) for gateway in gateways)


def _state_text(report: StatusReport) -> str:
    """The state of the tree, and while it drains how many requests are left."""
    if report.state is not TreeState.DRAINING:
        return report.state
    n_left = requests_left(report)
    return f"{report.state}, {n_left} {'request' if n_left == 1 else 'requests'} left"


def _supervisor_text(report: StatusReport) -> str:
    """The processes above the actors; empty if the report does not name them."""
    if not report.supervisor_pid:
        return ""
    parent = f"pid {report.parent_pid}" if report.parent_pid else "none"
    deaths = f"  deaths of the parent: {report.parent_deaths}" if report.parent_deaths else ""
    return f"supervisor: pid {report.supervisor_pid}  parent: {parent}{deaths}"


def _row(columns: Sequence[_Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.ljust(width) if column.is_text else cell.rjust(width)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    ]
    return _GAP.join(aligned)


def _folded(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, max(width, 20), initial_indent=indent, subsequent_indent=indent or _INDENT)


def _note(child: ChildStatus, with_figures: bool) -> str:
    """Whether its replica is cordoned; what an actor is doing, or its figures; then how its last process ended."""
    told = sorted(child.statistics.items()) if with_figures else []
    told = [(key, value) for key, value in told if value and not is_gpu_figure(key) and not is_usage_figure(key)]
    figures = ", ".join(f"{key} {_figure(value)}" for key, value in told)
    ended = f"last exit: {child.last_exit}, {span_text(child.last_exit_age_s)} ago" if child.last_exit else ""
    # a dead child's phase repeats how it ended, unless it says why the child is not back yet
    is_said = child.state is ChildState.DEAD and child.last_exit.startswith(child.phase)
    now = "" if is_said else child.phase or figures
    retired = f"retired: {child.retired}" if child.retired else ""
    return "; ".join(part for part in (child.cordon, retired, now, ended) if part)


def _figure(value: float) -> str:
    """Large figures with all their digits: `g` would write 196,853,760 as 1.96854e+08."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:g}"


def state_text(state: str, incarnation: int) -> str:
    """The state of a child. One that has had no process yet, as a standby whose gang still starts, is not dead."""
    return "not yet" if state == ChildState.DEAD and incarnation == 0 else state


def span_text(span_s: float) -> str:
    """A time in two units at most: "59 s", "3 min 20 s", "2 h 5 min", "4 d 1 h"."""
    seconds = int(span_s)
    for size, unit, small, small_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // small} {small_unit}"
    return f"{seconds} s"
