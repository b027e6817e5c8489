"""Draws the figures of a server as lines of a terminal, 80 x 24 or any other size. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rich.text import Text

from messages.lifecycle.cache_figures import AnswerFigures, CacheFigures, PrefixFigures, SimilarFigures
from messages.lifecycle.tree import ChildState, TreeState
from supervisor.operator.status_table import span_text, state_text
from supervisor.top.figures import ChildRow, GpuRow, TopFigures

_BARS = "▁▂▃▄▅▆▇█"
_LABEL = 12
_LEAST_ROWS = 3  # of processes
_GOOD = (ChildState.READY, ChildState.DRAINED)
_STATE_STYLES = {TreeState.SERVING: "bold green", TreeState.STARTING: "bold yellow", TreeState.DEGRADED: "bold red"}


class SortBy(StrEnum):
    """The order of the processes; the key s goes on to the next one."""

    TREE = "start order"
    TROUBLE = "trouble first"
    DEATHS = "deaths"
    MEMORY = "memory"

    @property
    def next(self) -> SortBy:
        """The order after this one."""
        orders = list(SortBy)
        return orders[(orders.index(self) + 1) % len(orders)]


_KEYS: dict[SortBy, Callable[[ChildRow], tuple[float, ...]]] = {
    SortBy.TREE: lambda row: (),
    SortBy.TROUBLE: lambda row: (row.state in _GOOD, row.last_exit_age_s if row.last_exit else float("inf")),
    SortBy.DEATHS: lambda row: (-row.restarts,),
    SortBy.MEMORY: lambda row: (-row.memory_bytes,),
}


@dataclass(frozen=True)
class View:
    """How the user wants to see it. `width`, `height`: of the terminal, in characters."""

    width: int = 80
    height: int = 24
    sort: SortBy = SortBy.TREE
    is_paused: bool = False
    has_keys: bool = True  # False: no line about keys


def drawn(figures: TopFigures, view: View) -> Text:
    """The screen, of at most `height` lines of at most `width` characters."""
    heads = [_title(figures), *_load(figures, view.width), *_caches(figures)]
    heads += [_gpu(gpu) for gpu in figures.gpus]
    heads += _tenants(figures)
    foot = [_foot(figures, view)] if view.has_keys else []
    room = max(view.height - len(heads) - len(foot) - 2, _LEAST_ROWS)  # without the empty line and the heading
    rows = sorted(figures.children, key=_KEYS[view.sort])
    shown = rows if len(rows) <= room else rows[: room - 1]
    width = max((len(row.name) for row in shown), default=0)
    columns = f"{'process':<{width}} {'state':<9} {'life':>4} {'up':>6} {'memory':>8}  last cause of death"
    lines = [*heads, Text(), Text(columns, "bold"), *(_child(row, width) for row in shown)]
    if len(shown) < len(rows):
        lines.append(Text(f"and {len(rows) - len(shown)} more; s sorts, a larger window shows them", "dim"))
    lines = lines[: max(view.height - len(foot), 1)]
    lines += [Text()] * (view.height - len(foot) - len(lines) if view.has_keys else 0)
    whole = [*lines, *foot]
    for line in whole:
        line.truncate(view.width, overflow="ellipsis")
    return Text("\n", no_wrap=True).join(whole)


def curve(rates: list[float], width: int) -> str:
    """The newest rates as a curve of at most `width` characters."""
    newest = rates[-width:]
    top = max(newest, default=0.0)
    return "".join(_BARS[min(int(rate / top * len(_BARS)), len(_BARS) - 1)] if top else _BARS[0] for rate in newest)


def _title(figures: TopFigures) -> Text:
    line = Text.assemble((figures.state, _STATE_STYLES.get(figures.state, "bold yellow")), "  ", (figures.model, "bold"))
    line.append(f"  {figures.url}  up {span_text(figures.uptime_s)}")
    if figures.no_answer_s:
        line = Text.assemble((f"no answer for {figures.no_answer_s:.0f} s  ", "bold red"), line)
    return line


def _load(figures: TopFigures, width: int) -> list[Text]:
    tokens = _labelled("tokens/s", f"{figures.tokens_rate:>9,.0f}  ")
    tokens.append(curve(figures.curve, min(max(width - _LABEL - 13, 1), 60)), "cyan")
    rates = f"{figures.requests_rate:>9,.1f}  prompt tokens/s {figures.prompt_tokens_rate:,.0f}"
    queue = f"{figures.waiting:>9,}  running {figures.running:,}  accepted {figures.active:,}"
    again = f"  submitted again {figures.resubmissions:,}" if figures.resubmissions else ""
    return [Text(figures.layout, "dim"), tokens, _labelled("requests/s", rates), _labelled("queue", queue + again)]


def _caches(figures: TopFigures) -> list[Text]:
    lines = [_labelled("cache", _prefix(figures.prefix))] if figures.prefix is not None else []
    if more := _more_caches(figures.more_caches):
        lines.append(_labelled("more caches", more))
    if figures.acceptance is not None:
        lines.append(_labelled("speculation", f"{figures.acceptance:>9.0%} of drafts accepted"))
    return lines


def _prefix(prefix: PrefixFigures) -> str:
    hits = f"{prefix.cached_tokens / prefix.prompt_tokens:>9.0%}" if prefix.prompt_tokens else f"{'-':>9}"
    used = (prefix.held + prefix.cached) / prefix.pages if prefix.pages else 0.0
    return f"{hits} of prompts found  {used:.0%} used, {prefix.held:,} held of {prefix.pages:,} pages"


def _more_caches(caches: CacheFigures) -> str:
    """What each of the other caches has given: pages that came back from a tier or moved between replicas, shares of requests
    and questions that kept answers were found for, and how often shared ones were found."""
    cells = (
        caches.host and f"host {_count(caches.host.loaded)}",
        caches.disk and f"disk {_count(caches.disk.read)}",
        caches.exchange and f"moved {_count(caches.exchange.moved)}",
        caches.answers and f"answers {_found(caches.answers)}",
        caches.shared and f"shared {_count(caches.shared.hits)}",
        caches.similar and f"similar {_found(caches.similar)}",
    )
    return "  ".join(cell for cell in cells if cell)


def _found(cache: AnswerFigures | SimilarFigures) -> str:
    asked = cache.hits + cache.misses
    return f"{cache.hits / asked:.0%}" if asked else "-"


def _count(number: int) -> str:
    """A count in at most four characters up to 999 millions: 950, 1.2k, 12k, 3.4M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            return f"{number // size}{unit}" if number >= 10 * size else f"{number // (size // 10) / 10:.1f}{unit}"
    return str(number)


def _gpu(gpu: GpuRow) -> Text:
    busy = f"{gpu.busy_percent:>7.0f} %" if gpu.busy_percent is not None else f"{'?':>9}"
    parts = [f"{busy} busy"]
    if gpu.memory_used_bytes is not None:
        whole = f" of {gpu.memory_total_bytes / 1e9:.0f}" if gpu.memory_total_bytes else ""
        parts.append(f"{gpu.memory_used_bytes / 1e9:.1f}{whole} GB")
    parts += [f"{gpu.power_watts:.0f} W"] if gpu.power_watts is not None else []
    parts += [f"{gpu.temperature_celsius:.0f} °C"] if gpu.temperature_celsius is not None else []
    return _labelled(f"gpu {gpu.name}"[: _LABEL - 1], "  ".join(parts))


def _tenants(figures: TopFigures) -> list[Text]:
    """The lines of the status table: all tenants, and those with limits. What is wider than the terminal is cut off, and those
    that have used most come first."""
    lines = (("tokens (requests)", figures.tenants), ("today (open)", figures.tenants_today))
    return [_labelled("tenants", f"{title}: {', '.join(use.text for use in uses)}") for title, uses in lines if uses]


def _child(row: ChildRow, width: int) -> Text:
    state = state_text(row.state, row.incarnation)
    style = "" if row.state in _GOOD else "dim" if state != row.state else "yellow" if row.state != ChildState.DEAD else "red"
    up = _short(row.uptime_s) if row.uptime_s else "-"
    memory = f"{row.memory_bytes / 1e6:,.0f} MB" if row.memory_bytes else "-"
    ended = f"{row.last_exit}, {_short(row.last_exit_age_s)} ago" if row.last_exit else ""
    what = "; ".join(filter(None, (ended, row.note if row.note != row.last_exit else "")))
    line = f"{row.name:<{width}} {state:<9} {row.incarnation:>4} {up:>6} {memory:>8}  {what}"
    return Text(line, style)


def _short(span_s: float) -> str:
    """A time in its largest unit: "59 s", "3 min", "2 h", "4 d"."""
    number, unit = span_text(span_s).split()[:2]
    return f"{number} {unit}"


def _foot(figures: TopFigures, view: View) -> Text:
    paused = "  paused" if view.is_paused else ""
    return Text(f"q quit  p {'go on' if view.is_paused else 'pause'}  s sort: {view.sort}{paused}", "reverse")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{_LABEL}}", "bold"), text)
