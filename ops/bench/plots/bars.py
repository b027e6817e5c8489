"""A result as a picture (SVG): horizontal bars, light or dark as the reader's system is. Equal results, equal bytes. Pure."""

from __future__ import annotations

import textwrap
from xml.sax.saxutils import escape

from ops.bench.plots.result import Bar, Chart, MeasuredResult

_WIDTH, _MARGIN, _LABELS = 720, 20, 190
_BAR, _GAP, _NUMBER = 15, 5, 110  # the height of a bar, between bars, and the room for a number behind the longest one
_LINE_CHARACTERS, _LINE = 108, 15
_N_COLOURS, _OTHER_SERVER = 4, 1
_STYLE = """\
text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-size:15px}.t,.p{font-weight:600}.c{font-size:11px;fill:#57606a}
.g{fill:#fff;stroke:#d0d7de}.a{stroke:#8c959f}.s0{fill:#00897b}.s1{fill:#e0763a}.s2{fill:#5b6fc0}.s3{fill:#9a6fb0}.s4{fill:#8a8f98}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.c{fill:#9aa4af}.g{fill:#1b1f26;stroke:#3a424d}.a{stroke:#6e7681}
.s0{fill:#26a69a}.s1{fill:#f0945c}.s2{fill:#8c9eea}.s3{fill:#c39bd8}.s4{fill:#aab0ba}}"""


def picture(result: MeasuredResult) -> str:
    """The picture of a result. Raises: ValueError for more series than there are colours."""
    colours = _colours(result)
    y = _MARGIN + 14
    parts = [_text(_MARGIN, y, result.title, "t"), *_legend(y + 22, colours)]
    y += 44
    for panel in result.panels:
        drawn, y = _panel(panel, y, colours)
        parts += drawn
    for line in textwrap.wrap(result.conditions, _LINE_CHARACTERS):
        parts.append(_text(_MARGIN, y, line, "c"))
        y += _LINE
    height = y + 4
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">'
    ground = f'<rect class="g" x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1}" rx="6"/>'
    return "\n".join([head, f"<title>{escape(result.title)}</title><style>{_STYLE}</style>", ground, *parts, "</svg>"]) + "\n"


def _colours(result: MeasuredResult) -> dict[str, str]:
    """The colour of each series: another server has the same one in all pictures."""
    if len(result.series) > _N_COLOURS:
        raise ValueError(f"{result.title}: expected at most {_N_COLOURS} series, got {len(result.series)}")
    own = iter([place for place in range(_N_COLOURS + 1) if place != _OTHER_SERVER])
    return {series: f"s{_OTHER_SERVER if series.startswith('vLLM') else next(own)}" for series in result.series}


def _legend(y: int, colours: dict[str, str]) -> list[str]:
    parts, x = list[str](), _MARGIN
    for series, colour in colours.items():
        parts.append(f'<rect class="{colour}" x="{x}" y="{y - 10}" width="12" height="12" rx="2"/>')
        parts.append(_text(x + 18, y, series))
        x += 40 + 7 * len(series)
    return parts


def _panel(panel: Chart, y: int, colours: dict[str, str]) -> tuple[list[str], int]:
    """A panel's parts, and where the next one begins."""
    parts = [_text(_MARGIN, y + 10, panel.title, "p")]
    top = y = y + 20
    most = max((bar.value or 0.0 for bar in panel.bars), default=0.0) or 1.0
    x, room = _MARGIN + _LABELS, _WIDTH - 2 * _MARGIN - _LABELS - _NUMBER
    before = ""
    for bar in panel.bars:
        y += _GAP if bar.label != before else 0
        if bar.label != before:
            parts.append(_text(x - 8, y + 12, bar.label, "", "end"))
        before = bar.label
        width = round(room * (bar.value or 0.0) / most, 1)
        parts.append(f'<rect class="{colours[bar.series]}" x="{x}" y="{y}" width="{width:g}" height="{_BAR - 2}"/>')
        parts.append(_text(round(x + width + 6), y + 11, _number(bar, panel.unit)))
        y += _BAR
    parts.append(f'<line class="a" x1="{x}" y1="{top}" x2="{x}" y2="{y + 3}"/>')
    return parts, y + 22


def _number(bar: Bar, unit: str) -> str:
    if bar.value is None:
        return bar.text
    shown = f"{bar.value:,.10g}" if bar.value != int(bar.value) else f"{int(bar.value):,}"
    return " ".join(word for word in (shown, unit, bar.text) if word)


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "") -> str:
    of_kind, at = f' class="{kind}"' if kind else "", f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x}" y="{y}"{of_kind}{at}>{escape(text)}</text>'
