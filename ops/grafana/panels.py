"""What a dashboard consists of, and its JSON in the schema of Grafana 10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_SCHEMA_VERSION = 38
_COLUMNS, _HEIGHT, _ROW_HEIGHT = 24, 8, 1  # of Grafana's grid
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
INSTANCE = 'instance=~"$instance"'  # every expression is about the servers that are chosen


class PanelUnit(StrEnum):
    """Grafana's names of units."""

    NUMBER = "short"
    PER_S = "cps"
    SECONDS = "s"
    SHARE = "percentunit"
    BYTES = "bytes"
    WATTS = "watt"
    CELSIUS = "celsius"
    HERTZ = "hertz"


class Shape(StrEnum):
    """Grafana's names of kinds of panels."""

    LINES = "timeseries"
    NUMBERS = "stat"
    STATES = "state-timeline"


@dataclass(frozen=True)
class Query:
    """One expression of PromQL. `legend`: the name of a line, with labels as `{{label}}`."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One plot. `help`: what a reader learns from it. `width`: of 24 columns. `is_stacked`: lines lie on each other."""

    title: str
    help: str
    queries: tuple[Query, ...]
    unit: PanelUnit = PanelUnit.NUMBER
    shape: Shape = Shape.LINES
    width: int = 8
    is_stacked: bool = False
    most: float | None = None

    def json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """The panel as Grafana reads it, with its place in the grid."""
        return {
            "id": number,
            "type": self.shape.value,
            "title": self.title,
            "description": self.help,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": _HEIGHT},
            "targets": [_target(index, query) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": _OPTIONS[self.shape],
        }

    def _defaults(self) -> dict[str, Any]:
        limits = {"min": 0} | ({} if self.most is None else {"max": self.most})
        lines = {"fillOpacity": 20 if self.is_stacked else 5, "lineWidth": 1, "showPoints": "never"}
        stacking = {"mode": "normal" if self.is_stacked else "none", "group": "A"}
        custom = {**lines, "stacking": stacking} if self.shape is Shape.LINES else {}
        return {"unit": self.unit.value, **limits, "custom": custom}


@dataclass(frozen=True)
class Section:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class DashboardPage:
    """One dashboard. `uid`: its name in addresses."""

    uid: str
    title: str
    help: str
    sections: tuple[Section, ...]

    @property
    def queries(self) -> list[Query]:
        """All queries."""
        return [query for section in self.sections for panel in section.panels for query in panel.queries]

    def json(self) -> dict[str, Any]:
        """The dashboard as Grafana reads it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.help,
            "tags": ["tardigrade"],
            "schemaVersion": _SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "2s",
            "time": {"from": "now-15m", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [_source_variable(), _instance_variable()]},
            "annotations": {"list": [_deaths()]},
            "links": [_link(self.uid)],
            "panels": _placed(self.sections),
        }


_OPTIONS: dict[Shape, dict[str, Any]] = {
    Shape.LINES: {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    Shape.NUMBERS: {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
    },
    Shape.STATES: {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
        "mergeValues": True, "showValue": "never", "rowHeight": 0.9,
    },
}  # fmt: skip


def _target(index: int, query: Query) -> dict[str, Any]:
    names = {"refId": chr(ord("A") + index), "expr": query.expression, "legendFormat": query.legend}
    return {"datasource": _SOURCE, **names, "range": True, "instant": False}


def _placed(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """The panels from left to right, row by row, each section under its heading."""
    found: list[dict[str, Any]] = []
    y = 0
    for section in sections:
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": _ROW_HEIGHT}
        found.append(
            {"id": len(found) + 1, "type": "row", "title": section.title, "collapsed": False, "panels": [], "gridPos": place}
        )
        x, y = 0, y + _ROW_HEIGHT
        for panel in section.panels:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + _HEIGHT
            found.append(panel.json(len(found) + 1, x, y))
            x += panel.width
        y += _HEIGHT
    return found


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0}


def _instance_variable() -> dict[str, Any]:
    query = {"query": "label_values(tardigrade_up, instance)", "refId": "instances"}
    every = {"text": ["All"], "value": ["$__all"], "selected": True}
    choice = {"includeAll": True, "multi": True, "allValue": ".*", "refresh": 2, "current": every}
    return {"name": "instance", "type": "query", "label": "server", "datasource": _SOURCE, "query": query, "hide": 0, **choice}


def _deaths() -> dict[str, Any]:
    """A mark in all plots for each death."""
    expression = f'sum by (actor, cause) (increase(tardigrade_deaths_total{{{INSTANCE}, cause!="ended"}}[10s])) > 0'
    shown = {"titleFormat": "{{actor}}", "textFormat": "{{cause}}", "iconColor": "red"}
    return {"name": "deaths", "datasource": _SOURCE, "enable": True, "expr": expression, "step": "10s", **shown}


def _link(uid: str) -> dict[str, Any]:
    """A menu of the other dashboards."""
    flags = {"asDropdown": False, "includeVars": True, "keepTime": True, "targetBlank": False}
    return {"title": "", "type": "dashboards", "tags": ["tardigrade"], "icon": "", "tooltip": uid, "url": "", **flags}
