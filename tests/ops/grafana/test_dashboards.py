"""The dashboards are drawn anew after each change, fit Grafana's schema, and ask for metrics that there are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from ops.grafana.__main__ import PAGES, main
from ops.grafana.panels import DashboardPage
from ops.metric_tables import metrics_by_role
from tests.support.documents.code_blocks import REPO, blocks_of
from tests.support.monitoring.rules import alert_rules

_METRIC = re.compile(r"\b(?:tardigrade|process)_\w+")
_SUFFIXES = ("_bucket", "_sum", "_count")  # of histograms


def test_the_files_are_what_would_be_drawn() -> None:
    assert main(["--check"]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.uid)
def test_panels_have_places_of_their_own(page: DashboardPage) -> None:
    panels = page.json()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def lost(wanted: Any, got: Any, path: str = "") -> list[str]:
    """The places at which `got` lacks what `wanted` has, or has something else."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        return [one for key in wanted for one in lost(wanted[key], got.get(key, ...), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        return [one for index, pair in enumerate(zip(wanted, got, strict=True)) for one in lost(*pair, f"{path}.{index}")]
    return [] if wanted == got else [path]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.uid)
def test_a_dashboard_fits_grafanas_schema(page: DashboardPage) -> None:
    """The types of Grafana's SDK read it, and write it again with all that was in it."""
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    plugins.register_default_plugins()
    drawn = page.json()
    again = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(drawn)))
    of_prometheus = {f".annotations.list.0.{name}" for name in ("step", "titleFormat", "textFormat")}  # not in the types
    assert set(lost(drawn, again)) <= of_prometheus


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_each_grafana_that_is_described_may_refresh_as_often_as_the_dashboards_ask() -> None:
    compose = yaml.safe_load((REPO / "ops" / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    page = (REPO / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (helm,) = (yaml.safe_load(block.text) for block in blocks_of("docs/monitoring.md", page) if block.language == "yaml")
    allowed = [
        compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_MIN_REFRESH_INTERVAL"],
        helm["grafana"]["grafana.ini"]["dashboards"]["min_refresh_interval"],
    ]
    assert max(map(seconds, allowed)) <= min(seconds(page.json()["refresh"]) for page in PAGES)


def test_dashboards_and_rules_ask_for_metrics_that_there_are() -> None:
    known = {row.name for rows in metrics_by_role().values() for row in rows}
    known |= {row.name + suffix for rows in metrics_by_role().values() for row in rows for suffix in _SUFFIXES}
    asked = [query.expression for page in PAGES for query in page.queries] + [rule.expr for rule in alert_rules().values()]
    assert {name for expression in asked for name in _METRIC.findall(expression)} <= known


def test_dashboards_and_rules_know_the_labels_of_their_metrics() -> None:
    """A sum by a label that no metric has is one line without a name, and an alert about it names nothing."""
    of_metric = {row.name: set(row.labels) for rows in metrics_by_role().values() for row in rows}
    asked = [(query.expression, query.legend) for page in PAGES for query in page.queries]
    asked += [(rule.expr, " ".join(rule.annotations.values())) for rule in alert_rules().values()]
    for expression, text in asked:
        metrics = [name for name in of_metric if re.search(rf"\b{name}(?:{'|'.join(_SUFFIXES)})?\b", expression)]
        known = {"instance", "job", "actor", "le"}.union(*(of_metric[name] for name in metrics))
        used = {label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")}
        used |= set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", expression))
        used |= set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))
        assert used <= known, (expression, text, used - known)
