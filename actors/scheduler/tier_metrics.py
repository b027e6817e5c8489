"""The figures of the tiers of evicted pages and of the moves between replicas: gauges, and the same for `supervisor status`."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

from actors.pages.host_ledger import HostLedger
from actors.scheduler.planning.disk_tier import DiskTier
from actors.scheduler.planning.exchange.page_exchange import PageExchange
from actors.scheduler.planning.host_tier import HostTier
from messages.steps import EngineCapacity

# By statistic: the rest of the metric's name, and what it is
_HOST = {
    "places": ("places", "Pages that the host tier can hold"),
    "in_use": ("places_in_use", "Places of the host tier whose memory is not with the system"),
    "pages": ("pages", "Pages in the host tier, as far as the scheduler knows"),
    "bytes": ("bytes", "Memory of these pages at all ranks"),
    "stored": ("stored_pages", "Pages that were copied to the host tier, because they were evicted or soon would be"),
    "loaded": ("loaded_pages", "Pages that came back from the host tier"),
    "failed": ("failed_pages", "Pages of the host tier that were missing or damaged"),
    "evicted": ("evicted_pages", "Pages of the host tier that others have overwritten"),
    "share_evicted": ("share_evicted_pages", "Overwritten pages of the host tier whose caller had more than its part"),
    "ahead": ("sequences_ahead", "Sequences that entered their slots ahead of the load that brings their pages"),
    "load_s": ("load_seconds", "Time that loads from the host tier have taken"),
    "saved_s": ("saved_seconds", "Time that computing the loaded pages would have taken, as estimated, less that of the loads"),
    "saved_bytes": ("saved_bytes", "Keys and values of the loaded pages at all ranks, as on the device"),
    "oldest_s": ("oldest_age_seconds", "Since when the page that is overwritten next was not used"),
}
_DISK = {
    "places": ("places", "Pages that the disk tier can hold"),
    "pages": ("pages", "Pages in the disk tier, as far as the scheduler knows"),
    "bytes": ("bytes", "Size of these pages at all ranks"),
    "written": ("written_pages", "Pages of the host tier that were to be written to the disk"),
    "read": ("read_pages", "Pages that came back from the disk to the host tier"),
    "failed": ("failed_pages", "Pages that the disk did not give"),
    "evicted": ("evicted_pages", "Pages of the disk tier that others have overwritten"),
    "share_evicted": ("share_evicted_pages", "Overwritten pages of the disk tier whose caller had more than its part"),
    "read_s": ("read_seconds", "Time that reads from the disk have taken"),
    "saved_s": ("saved_seconds", "Time that computing the read pages would have taken, as estimated, less reads and loads"),
    "saved_bytes": ("saved_bytes", "Keys and values of the read pages at all ranks, as on the device"),
    "oldest_s": ("oldest_age_seconds", "Since when the page that is overwritten next was not used"),
}
_EXCHANGE = {
    "places": ("places", "Pages that can lie in the exchange"),
    "pages": ("pages", "Pages that lie in the exchange, for other replicas"),
    "bytes": ("bytes", "Memory of these pages at all ranks"),
    "evicted": ("evicted_pages", "Pages of the exchange that others have overwritten"),
    "oldest_s": ("oldest_age_seconds", "Since when the page that is overwritten next was not used"),
    "lent": ("lent_pages", "Pages that were offered to other replicas"),
    "moved": ("moved_pages", "Pages that came from other replicas"),
    "failed": ("failed_pages", "Pages of other replicas that did not come, or damaged"),
    "move_s": ("move_seconds", "Time from questions to other replicas until their pages could be used"),
    "saved_s": ("saved_seconds", "Time that computing the moved pages would have taken, as estimated, less that of the moves"),
    "saved_bytes": ("saved_bytes", "Keys and values of the moved pages at all ranks"),
}


class _Figures:
    """Gauges whose names begin with that of a cache."""

    def __init__(self, registry: CollectorRegistry, cache: str, meanings: Mapping[str, tuple[str, str]]) -> None:
        self._cache = cache
        self._gauges = {
            field: Gauge(f"tardigrade_scheduler_{cache}_{name}", what, registry=registry)
            for field, (name, what) in meanings.items()
        }

    def show(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Set the gauges. Returns the numbers with the name of the cache before each."""
        for field, gauge in self._gauges.items():
            gauge.set(numbers[field])
        return {f"{self._cache}_{field}": round(float(number), 3) for field, number in numbers.items()}


class TierMetrics:
    """The gauges of one scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._host, self._disk = _Figures(registry, "host", _HOST), _Figures(registry, "disk", _DISK)
        self._exchange = _Figures(registry, "exchange", _EXCHANGE)

    def show(self, tier: HostTier, capacity: EngineCapacity) -> dict[str, float]:
        """Set the gauges of what a server has. Returns the numbers for `supervisor status`."""
        shown: dict[str, float] = {}
        if tier.n_places:
            shown |= self._host.show(_of_host(tier, capacity))
        if tier.disk.n_places:
            shown |= self._disk.show(_of_disk(tier.disk, capacity))
        if tier.exchange.n_places:
            shown |= self._exchange.show(_of_exchange(tier.exchange, capacity))
        return shown


def _of_host(tier: HostTier, capacity: EngineCapacity) -> dict[str, float]:
    counts = tier.counts
    own = {"stored": counts.stored, "loaded": counts.loaded, "failed": counts.failed, "load_s": counts.load_s}
    own |= {"saved_s": counts.saved_s, "saved_bytes": counts.loaded * capacity.page_bytes, "ahead": tier.ahead.n_entered}
    own |= {"share_evicted": tier.contents.n_share_evicted, "in_use": tier.contents.n_in_use}
    return own | _of_ledger(tier.contents, capacity.host_bytes)


def _of_disk(tier: DiskTier, capacity: EngineCapacity) -> dict[str, float]:
    counts = tier.counts
    own = {"written": counts.written, "read": counts.read, "failed": counts.failed, "read_s": counts.read_s}
    own |= {"saved_s": counts.saved_s, "saved_bytes": counts.read * capacity.page_bytes}
    own |= {"share_evicted": tier.contents.ledger.n_share_evicted}
    return own | _of_ledger(tier.contents.ledger, capacity.disk_bytes)


def _of_ledger(ledger: HostLedger, n_bytes: int) -> dict[str, float]:
    """n_bytes: of all places."""
    used = len(ledger) * n_bytes // max(ledger.n_places, 1)
    return {
        "places": ledger.n_places,
        "pages": len(ledger),
        "bytes": used,
        "evicted": ledger.n_evicted,
        "oldest_s": ledger.unused_s(),
    }


def _of_exchange(exchange: PageExchange, capacity: EngineCapacity) -> dict[str, float]:
    counts, lying = exchange.borrower.counts, exchange.lending.contents
    return _of_ledger(lying, lying.n_places * capacity.page_bytes) | {
        "places": exchange.n_places,
        "lent": exchange.lending.n_lent,
        "moved": counts.moved,
        "failed": counts.failed,
        "move_s": counts.moved_s,
        "saved_s": counts.saved_s,
        "saved_bytes": counts.moved * capacity.page_bytes,
    }
