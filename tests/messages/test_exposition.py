"""The text of all actors is the one that prometheus_client writes for the same families."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from messages import exposition
from messages.exposition import LineStarts, render_exposition
from messages.lifecycle.lifecycle import MetricFamily, MetricSample

NAMES = ("tardigrade_a", "tardigrade_b", "vllm:c")
KINDS = {"counter": "_total", "gauge": "", "histogram": "_bucket", "unknown": ""}


class Merged(Collector):
    """The oracle: families of one name together, each sample with its actor."""

    def __init__(self, by_actor: Iterable[tuple[str, list[MetricFamily]]]) -> None:
        self.by_actor = by_actor

    def collect(self) -> Iterator[Metric]:
        merged: dict[str, Metric] = {}
        for actor, families in self.by_actor:
            for family in families:
                metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    metric.add_sample(family.name + sample.suffix, {**sample.labels, "actor": actor}, sample.value)
        yield from merged.values()


@st.composite
def families(draw: st.DrawFn) -> list[MetricFamily]:
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        kind = list(KINDS)[NAMES.index(name)]
        labels = st.dictionaries(st.sampled_from(("le", "zone", "Code", "_x")), st.text(max_size=8), max_size=3)
        values = st.floats() | st.integers(-(10**7), 10**7).map(float)
        samples = draw(st.lists(st.builds(MetricSample, st.just(KINDS[kind]), labels, values), max_size=4))
        found.append(MetricFamily(name, draw(st.text(max_size=20)), kind, samples))
    return found


@given(st.lists(st.tuples(st.sampled_from(("gateway/0", "worker/0.1b")), families()), max_size=3))
def test_it_is_what_the_library_writes(by_actor: list[tuple[str, list[MetricFamily]]]) -> None:
    registry = CollectorRegistry()
    registry.register(Merged(by_actor))
    starts: LineStarts = {}
    assert render_exposition(by_actor) == generate_latest(registry)
    assert render_exposition(by_actor, starts) == render_exposition(by_actor, starts) == generate_latest(registry)


def test_what_is_kept_between_scrapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that come and go, as tenants do, do not stay for ever."""
    monkeypatch.setattr(exposition, "_MOST_STARTS", 4)
    starts: LineStarts = {}
    for number in range(20):
        samples = [MetricSample("", {"tenant": str(number)}, float(number))]
        text = render_exposition([("gateway/0", [MetricFamily("a", "", "gauge", samples)])], starts)
        assert text.endswith(f'a{{actor="gateway/0",tenant="{number}"}} {number}.0\n'.encode())
        assert len(starts) <= 5
