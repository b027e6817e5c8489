"""A Prometheus registry as metric families for a Progress message, and back into one text for the whole server."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from messages.lifecycle import MetricFamily, MetricSample


def take_snapshot(registry: CollectorRegistry) -> list[MetricFamily]:
    """All metric families of one process, with their present values."""
    return [
        MetricFamily(
            name=family.name,
            documentation=family.documentation,
            type=family.type,
            samples=[
                MetricSample(suffix=s.name.removeprefix(family.name), labels=dict(s.labels), value=float(s.value))
                for s in family.samples
                if not s.name.endswith("_created")
            ],
        )
        for family in registry.collect()
    ]


class _Merged(Collector):
    def __init__(self, by_actor: Iterable[tuple[str, list[MetricFamily]]]) -> None:
        self._by_actor = list(by_actor)

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for actor, families in self._by_actor:
            for family in families:
                metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    metric.add_sample(family.name + sample.suffix, {**sample.labels, "actor": actor}, sample.value)
        return merged.values()


def render_exposition(by_actor: Iterable[tuple[str, list[MetricFamily]]]) -> bytes:
    """One Prometheus text for all actors; each sample gets the label `actor`."""
    registry = CollectorRegistry()
    registry.register(_Merged(by_actor))
    return generate_latest(registry)
