"""What tenants have used, as lines for the status table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from messages.access.tenant_policy import MOST_NAMED_TENANTS, OTHER_TENANTS, REQUESTS_OF, SEQUENCES_OF, TODAY_OF, TOKENS_OF
from messages.ids import role_of
from messages.lifecycle.tree import StatusReport


def tenant_lines(report: StatusReport) -> list[str]:
    """A line with what all tenants have used since the gateways started, and one with those that have limits, as the accounts
    count them today. A line without tenants is left out."""
    return [*_since_start(report), *_today(report)]


def is_usage_figure(key: str) -> bool:
    """True for a name in a gateway's statistics that tells what a tenant has used."""
    return key.startswith((REQUESTS_OF, TOKENS_OF))


def _since_start(report: StatusReport) -> Iterator[str]:
    requests, tokens = Counter[str](), Counter[str]()
    for child in report.children:
        if role_of(child.name) == "gateway":
            _add(requests, child.statistics, REQUESTS_OF)
            _add(tokens, child.statistics, TOKENS_OF)
    # gateways name the tenants that came first to them, so together they may name more than each
    named = sorted((name for name in tokens if name != OTHER_TENANTS), key=lambda name: (-tokens[name], name))
    for name in named[MOST_NAMED_TENANTS:]:
        for counts in (requests, tokens):
            counts[OTHER_TENANTS] += counts.pop(name)
    shown = named[:MOST_NAMED_TENANTS] + [OTHER_TENANTS] * (OTHER_TENANTS in tokens)
    if shown:
        texts = [f"{name} {tokens[name]:,} ({requests[name]:,})" for name in shown]
        yield f"tokens of tenants since the gateways started (requests): {', '.join(texts)}"


def _add(counts: Counter[str], figures: Mapping[str, float], beginning: str) -> None:
    for key, value in figures.items():
        if key.startswith(beginning):
            counts[key.removeprefix(beginning)] += int(value)


def _today(report: StatusReport) -> Iterator[str]:
    figures = next((child.statistics for child in report.children if role_of(child.name) == "accounts"), {})
    names = [key.removeprefix(TODAY_OF) for key in figures if key.startswith(TODAY_OF)]
    texts = [f"{name} {figures[TODAY_OF + name]:,.0f} ({figures.get(SEQUENCES_OF + name, 0):.0f} open)" for name in names]
    if texts:
        yield f"tokens of tenants today (open sequences): {', '.join(texts)}"
