"""Hit rates over cache sizes as a picture (SVG): a field for each trace, a line for each policy."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 220, 44, 34
_FIELD_WIDTH, _FIELD_HEIGHT = 230, 140
_COLOURS = ("#1f6fb4", "#e07b00", "#2f8f2f", "#c02f2f", "#7a4fb0", "#555555", "#b03f8f")

Curves = Mapping[str, Mapping[int, float]]  # hit rate, 0 to 1, by policy and number of pages


def picture(curves_by_trace: Mapping[str, Curves]) -> str:
    """The picture. Cache sizes stand at equal distances; the vertical axis goes from 0 to 100 %."""
    n_traces, policies = len(curves_by_trace), list(next(iter(curves_by_trace.values())))
    colour_of = {policy: _COLOURS[place % len(_COLOURS)] for place, policy in enumerate(policies)}
    parts = [_field(place * _WIDTH, trace, curves, colour_of) for place, (trace, curves) in enumerate(curves_by_trace.items())]
    for place, (policy, colour) in enumerate(colour_of.items()):
        x, y = _LEFT + place * 110, _HEIGHT + 4
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 18}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 23}" y="{y + 4}">{escape(policy)}</text>')
    width = max(n_traces * _WIDTH, _LEFT + len(policies) * 110)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT + 20}" font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"


def _field(left: int, trace: str, curves: Curves, colour_of: Mapping[str, str]) -> str:
    sizes = sorted(next(iter(curves.values())))
    x0, y0 = left + _LEFT, _TOP + _FIELD_HEIGHT
    gap = _FIELD_WIDTH / max(len(sizes) - 1, 1)
    x_of = {size: x0 + place * gap for place, size in enumerate(sizes)}
    parts = [f'<text x="{x0}" y="{_TOP - 12}" font-weight="bold">{escape(trace)}: pages found, by pages of the cache</text>']
    for percent in (0, 25, 50, 75, 100):
        y = y0 - percent / 100 * _FIELD_HEIGHT
        parts.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + _FIELD_WIDTH}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    parts += [f'<text x="{x:.1f}" y="{y0 + 16}" text-anchor="middle">{size:,}</text>' for size, x in x_of.items()]
    for policy, rates in curves.items():
        points = " ".join(f"{x_of[size]:.1f},{y0 - rate * _FIELD_HEIGHT:.1f}" for size, rate in sorted(rates.items()))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour_of[policy]}" stroke-width="1.6"/>')
        parts += [
            f'<circle cx="{x_of[size]:.1f}" cy="{y0 - rate * _FIELD_HEIGHT:.1f}" r="2" fill="{colour_of[policy]}"/>'
            for size, rate in sorted(rates.items())
        ]
    return "\n".join(parts)
