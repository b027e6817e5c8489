"""What tenants have used, in figures and as lines for the status table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from messages.access.tenant_policy import MOST_NAMED_TENANTS, OTHER_TENANTS, REQUESTS_OF, SEQUENCES_OF, TODAY_OF, TOKENS_OF
from messages.ids import role_of
from messages.lifecycle.tree import StatusReport


class TenantUse(msgspec.Struct, frozen=True):
    """What one tenant has used."""

    name: str
    tokens: int
    count: int  # of its ended requests, or of its open sequences

    @property
    def text(self) -> str:
        """As one cell of a line."""
        return f"{self.name} {self.tokens:,} ({self.count:,})"


def tenant_lines(report: StatusReport) -> list[str]:
    """A line with what all tenants have used since the gateways started, and one with those that have limits, as the accounts
    count them today. A line without tenants is left out."""
    lines = (
        ("tokens of tenants since the gateways started (requests)", used_since_start(report)),
        ("tokens counted against limits today (open sequences)", used_today(report)),
    )
    return [f"{title}: {', '.join(use.text for use in uses)}" for title, uses in lines if uses]


def is_usage_figure(key: str) -> bool:
    """True for a name in a gateway's statistics that tells what a tenant has used."""
    return key.startswith((REQUESTS_OF, TOKENS_OF))


def used_since_start(report: StatusReport) -> list[TenantUse]:
    """What all tenants have used since the gateways started, and how many of their requests have ended. Those that have used
    most come first; those without a name of their own are one row at the end."""
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
    return [TenantUse(name, tokens[name], requests[name]) for name in shown]


def used_today(report: StatusReport) -> list[TenantUse]:
    """What the accounts count today of the tenants that have limits, and how many of their sequences are open."""
    figures = next((child.statistics for child in report.children if role_of(child.name) == "accounts"), {})
    names = [key.removeprefix(TODAY_OF) for key in figures if key.startswith(TODAY_OF)]
    return [TenantUse(name, int(figures[TODAY_OF + name]), int(figures.get(SEQUENCES_OF + name, 0))) for name in names]


def _add(counts: Counter[str], figures: Mapping[str, float], beginning: str) -> None:
    for key, value in figures.items():
        if key.startswith(beginning):
            counts[key.removeprefix(beginning)] += int(value)
