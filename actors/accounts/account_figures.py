"""What metrics and the status table show of the accounts. Only some tenants have names there, so that their number is bounded.
The others are counted together as `OTHER_TENANTS`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.accounts.ledger import Ledger
from messages.access.tenant_policy import MOST_NAMED_TENANTS, OTHER_TENANTS

MOST_SHOWN = 8  # in the status table


def named(ledger: Ledger, most: int) -> list[tuple[str, int, int]]:
    """(tenant, open sequences, tokens today) of those that have used the most today, and of all others together."""
    rows = [(name, one.n_sequences, one.used_today) for name, one in ledger.accounts.items()]
    rows.sort(key=lambda row: (-row[2], -row[1], row[0]))
    rest = rows[most:]
    if rest:
        rows[most:] = [(OTHER_TENANTS, sum(row[1] for row in rest), sum(row[2] for row in rest))]
    return rows


class AccountMetrics(Collector):
    """To be registered where the accounts are."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """The present numbers, each as one metric."""
        open_sequences = GaugeMetricFamily(
            "tardigrade_tenant_sequences", "Accepted sequences of a tenant with limits that have not ended.", labels=["tenant"]
        )
        today = GaugeMetricFamily(
            "tardigrade_tenant_tokens_today", "Tokens that a tenant with limits has used since 0:00 UTC.", labels=["tenant"]
        )
        for tenant, n_sequences, n_tokens in named(self._ledger, MOST_NAMED_TENANTS):
            open_sequences.add_metric([tenant], n_sequences)
            today.add_metric([tenant], n_tokens)
        yield open_sequences
        yield today
