"""What each tenant uses, as the page shows it: from the metrics of gateways and from the accounts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from messages.access.tenant_policy import SEQUENCES_OF, TODAY_OF
from messages.lifecycle.lifecycle import MetricFamily

_FAMILIES = {"tardigrade_tenant_requests": "requests", "tardigrade_tenant_refused": "refused"}
_TOKENS = "tardigrade_tenant_tokens"  # by part: of prompts, of answers


class TenantLine(msgspec.Struct, frozen=True):
    """One tenant. The counts are since the gateways began; `today` and `open_sequences` are the accounts' (None: no limits)."""

    tenant: str
    active: int = 0  # requests that have not ended
    requests: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    refused: float = 0.0
    today: float | None = None
    open_sequences: float | None = None


def tenant_rows(
    families: Iterable[MetricFamily], accounts: Mapping[str, float], n_by_tenant: Mapping[str, int]
) -> list[TenantLine]:
    """All tenants that have used something, those with the most tokens first. accounts: the figures of the accounts."""
    fields: dict[str, dict[str, float]] = {tenant: {"active": float(n)} for tenant, n in n_by_tenant.items() if tenant}
    for family in families:
        for sample in family.samples:
            field = _field_of(family.name, sample.labels.get("part", ""))
            if field and "tenant" in sample.labels:
                counts = fields.setdefault(sample.labels["tenant"], {})
                counts[field] = counts.get(field, 0.0) + sample.value
    for beginning, field in ((TODAY_OF, "today"), (SEQUENCES_OF, "open_sequences")):
        for key, value in accounts.items():
            if key.startswith(beginning):
                fields.setdefault(key.removeprefix(beginning), {})[field] = value
    rows = [msgspec.convert({**counts, "tenant": tenant}, TenantLine, strict=False) for tenant, counts in fields.items()]
    return sorted(rows, key=lambda row: (-(row.prompt_tokens + row.output_tokens), row.tenant))


def _field_of(family: str, part: str) -> str:
    return f"{part}_tokens" if family == _TOKENS else _FAMILIES.get(family, "")
