"""What a tenant sees of metrics: its own usage, and nothing of other tenants, whose names and pace are theirs. Pure."""

from __future__ import annotations

import re
from typing import Any

from messages.access.tenant_policy import REQUESTS_OF, SEQUENCES_OF, TODAY_OF, TOKENS_OF

_LABEL = re.compile(rb'[{,]tenant="([^"]*)"')
_FIGURES = (SEQUENCES_OF, TODAY_OF, REQUESTS_OF, TOKENS_OF)


def own_exposition(text: bytes, tenant: str) -> bytes:
    """A Prometheus text without the lines about other tenants than this one."""
    own = tenant.encode()
    return b"".join(
        line for line in text.splitlines(keepends=True) if (found := _LABEL.search(line)) is None or found[1] == own
    )


def own_summary(summary: dict[str, Any], tenant: str) -> dict[str, Any]:
    """The JSON of /v1/metrics without the figures about other tenants than this one."""
    actors = {name: _own_figures(figures, tenant) for name, figures in summary["actors"].items()}
    return {**_own_figures(summary, tenant), "actors": actors}


def _own_figures(figures: dict[str, Any], tenant: str) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if not key.startswith(_FIGURES) or key.endswith(f" of {tenant}")}
