"""What tenants with limits use now, as lines for the status table."""

from __future__ import annotations

from messages.access.tenant_policy import SEQUENCES_OF, TODAY_OF
from messages.ids import role_of
from messages.lifecycle.tree import StatusReport


def tenant_lines(report: StatusReport) -> list[str]:
    """One line with the tenants that have used the most today; none without tenants that have limits."""
    figures = next((child.statistics for child in report.children if role_of(child.name) == "accounts"), {})
    names = [key.removeprefix(TODAY_OF) for key in figures if key.startswith(TODAY_OF)]
    texts = [f"{name} {figures[TODAY_OF + name]:,.0f} ({figures.get(SEQUENCES_OF + name, 0):.0f} open)" for name in names]
    return [f"tokens of tenants today (open sequences): {', '.join(texts)}"] if texts else []
